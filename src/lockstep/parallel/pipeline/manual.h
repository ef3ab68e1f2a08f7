// A pipeline by hand: a network in two parts that run one after the other in one process, and the hand-off between
// them.
//
//   inputs ──> first ──> output ┄┄ its values ┄┄> leaf ──> second ──> loss
//                        output <┄ leaf.grad() ┄┄ leaf <── backward ── loss
//
// Nothing is distributed here, and that is the point: autograd sees two graphs that know nothing of each other, as it
// does when each part is on its own rank. Only values cross the cut in one direction, and their gradient in the other,
// and still the two parts compute the same as the whole network. Ranks would send messages where the dotted lines are.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/optimizer.h>

#include <functional>

namespace lockstep::pipeline {

// One part of a network, and the optimizer of this part's parameters only.
struct Part {
  torch::nn::SequentialImpl& model;
  torch::optim::Optimizer& optimizer;
};

// How one step spent its seconds, both parts together.
struct ManualTimes {
  double forward = 0;    // includes the loss
  double backward = 0;   // includes the hand-off
  double optimizer = 0;  // includes zero_grad
};

// One step of both parts: `first` runs on the inputs, `second` on the output of `first`, and `loss` on the output of
// `second`. Returns the loss, detached.
torch::Tensor manual_pipeline_step(const Part& first, const Part& second, const torch::Tensor& inputs,
                                   const std::function<torch::Tensor(const torch::Tensor& output)>& loss,
                                   ManualTimes* times = nullptr);

}  // namespace lockstep::pipeline
