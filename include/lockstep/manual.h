// Data parallelism and pipeline parallelism by hand, in one process. Nothing is distributed here, and that is the
// point: these are the two ideas without the machinery.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <utility>

#include "lockstep/gradients.h"

namespace lockstep {

// --- two copies of a model, each with half of the batch ---
//
//        batch rows 0..15 ──> copy A ──> gradients A ─┐
//                                                     ├─ mean ──> both copies step alike
//        batch rows 16..31 ─> copy B ──> gradients B ─┘
//
// The mean of the two halves' gradients is the whole batch's gradient, so both copies stay equal to a model that saw
// all of it.

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

// --- a network in two parts that run one after the other, and the hand-off between them ---
//
//   inputs ──> first ──> output ┄┄ its values ┄┄> leaf ──> second ──> loss
//                        output <┄ leaf.grad() ┄┄ leaf <── backward ── loss
//
// Autograd sees two graphs that know nothing of each other, as it does when each part is on its own rank. Only values
// cross the cut in one direction, and their gradient in the other, and still the two parts compute the same as the
// whole network. Ranks would send messages where the dotted lines are.

namespace pipeline {

// One part of a network, and the optimizer of this part's parameters only.
struct Part {
  torch::nn::SequentialImpl& model;
  torch::optim::Optimizer& optimizer;
};

// How one step spent its seconds, both parts together.
struct ManualPipelineTimes {
  double forward = 0;    // includes the loss
  double backward = 0;   // includes the hand-off
  double optimizer = 0;  // includes zero_grad
};

// The two halves of a network, with as many layers each as possible. The modules are shared with `network`, and keep
// the names that they have there. Throws UsageError if the network has only one layer.
std::pair<torch::nn::Sequential, torch::nn::Sequential> cut_in_two(const torch::nn::SequentialImpl& network);

// One step of both parts: `first` runs on the inputs, `second` on the output of `first`, and `loss` on the output of
// `second`. Returns the loss, detached.
torch::Tensor manual_pipeline_step(const Part& first, const Part& second, const torch::Tensor& inputs,
                                   const std::function<torch::Tensor(const torch::Tensor& output)>& loss,
                                   ManualPipelineTimes* times = nullptr);

}  // namespace pipeline
}  // namespace lockstep
