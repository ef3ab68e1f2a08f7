// Data parallelism by hand: two copies of a model in one process, each with half of the batch.
//
//        batch rows 0..15 ──> copy A ──> gradients A ─┐
//                                                     ├─ mean ──> both copies step alike
//        batch rows 16..31 ─> copy B ──> gradients B ─┘
//
// Nothing is distributed here, and that is the point: the mean of the two halves' gradients is the whole batch's
// gradient, so both copies stay equal to a model that saw all of it.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "lockstep/parallel/data/step.h"

namespace lockstep {

struct Copy {
  torch::nn::Module& model;
  torch::optim::Optimizer& optimizer;
  Loss loss;  // the loss on this copy's half of the batch
};

// How one step spent its seconds, both copies together.
struct ManualTimes {
  double forward = 0;
  double backward = 0;
  double averaging = 0;
  double optimizer = 0;  // includes zero_grad
};

// One step of both copies, which must hold the same weights. Returns the mean of the two losses.
torch::Tensor manual_data_parallel_step(const Copy& a, const Copy& b, ManualTimes* times = nullptr);

}  // namespace lockstep
