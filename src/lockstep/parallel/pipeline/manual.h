// A pipeline by hand: a network in two parts, one after the other in one process, and the hand-off between them.
//
//   inputs ──> first ──> output ┄┄ its values ┄┄> leaf ──> second ──> loss
//                        output <┄ leaf.grad() ┄┄ leaf <── backward ── loss
//
// Nothing is distributed here, and that is the point: autograd sees two graphs that know nothing of each other, as it
// does when each part is on a rank of its own. What crosses the cut is values one way and their gradient the other, so
// the parts stay equal to the whole network. A rank would send where the dotted lines are.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/optimizer.h>

#include <functional>

namespace lockstep::pipeline {

// One part of a network, and the optimizer of its parameters and no others.
struct Part {
  torch::nn::SequentialImpl& model;
  torch::optim::Optimizer& optimizer;
};

// Where the seconds of one step went, both parts together.
struct ManualTimes {
  double forward = 0;    // with the loss
  double backward = 0;   // with the hand-off
  double optimizer = 0;  // with zero_grad
};

// One step of both parts: `first` on the inputs, `second` on what that gives, `loss` on what that gives. Returns the
// loss, detached.
torch::Tensor manual_pipeline_step(const Part& first, const Part& second, const torch::Tensor& inputs,
                                   const std::function<torch::Tensor(const torch::Tensor& output)>& loss,
                                   ManualTimes* times = nullptr);

}  // namespace lockstep::pipeline
