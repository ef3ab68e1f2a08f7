// Naive data parallelism: forward, backward, then one all-reduce a parameter.
//
//   forward ──> backward ──> all-reduce p0 ──> all-reduce p1 ──> ... ──> optimizer
//
// Right, and slow twice over: nobody computes while gradients travel, and every small parameter pays a whole
// collective's latency. hooks.h mends the first, ddp.h both.
#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/data/step.h"

namespace lockstep {

// After backward: every gradient becomes the mean over all ranks. A gradient that is missing counts as zeros.
void average_gradients(const std::vector<torch::Tensor>& parameters, Communicator& comm);

// One whole step; gives this rank's loss. All ranks must hold the same weights.
torch::Tensor naive_data_parallel_step(const std::vector<torch::Tensor>& parameters, torch::optim::Optimizer& optimizer,
                                       Communicator& comm, const Loss& loss);

}  // namespace lockstep
