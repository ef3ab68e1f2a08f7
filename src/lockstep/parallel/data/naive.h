// Naive data parallelism: forward, backward, then one all-reduce per parameter.
//
//   forward ──> backward ──> all-reduce p0 ──> all-reduce p1 ──> ... ──> optimizer
//
// The result is right, but there are two costs: no rank computes while gradients travel, and every small parameter pays
// the whole latency of a collective. hooks.h removes the first cost, ddp.h both.
#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/data/step.h"

namespace lockstep {

// Must be called after backward. Every gradient becomes the mean over all ranks. A missing gradient counts as zeros.
void average_gradients(const std::vector<torch::Tensor>& parameters, Communicator& comm);

// One whole training step. Returns this rank's loss. All ranks must hold the same weights.
torch::Tensor naive_data_parallel_step(const std::vector<torch::Tensor>& parameters, torch::optim::Optimizer& optimizer,
                                       Communicator& comm, const Loss& loss);

}  // namespace lockstep
