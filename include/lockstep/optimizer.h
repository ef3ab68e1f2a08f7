// Adam, AdamW and SGD: torch::optim's optimizers of the same names, in one pass over memory.
//
// libtorch's optimizers run up to a dozen tensor operations for each parameter. Each operation is a call that costs
// microseconds, and a sweep over memory: for small parameters the calls dominate, for large ones the sweeps. Here one
// loop reads a parameter, its gradient and its state once, and writes the parameter and the state once. The time of a
// step on one core with libtorch 2.13, as bench/optimizer_cost.cpp measures it, in ms:
//
//                      MLP 16 x 128              MLP 16 x 1024
//                      here     libtorch's       here     libtorch's
//     Adam             0.11     0.58             10.5     34.2
//     AdamW            0.11     0.64             10.8     36.3
//     SGD, momentum    0.037    0.153            8.4      12.5
//     SGD              0.025    0.047            5.1      5.0
//
// Plain SGD is a single operation in libtorch, too, so there is nothing to gain once memory is what bounds it.
//
// To switch, write lockstep::Adam for torch::optim::Adam. Everything else stays:
//
// 1. Each class derives from libtorch's, with its options, its parameter groups and its state. So learning-rate
//    schedulers work, and torch::load reads what the other one saved with torch::save, in both directions.
// 2. Steps are libtorch's up to a rounding in the last bit: whether libtorch's operations fuse a product and a sum
//    depends on its version, the processor and the place in a tensor.
// 3. If there is something that the loop does not handle, libtorch's class makes the whole step: a parameter, gradient
//    or state that is not float32, sparse or not on the CPU; a gradient whose elements lie in another order than the
//    parameter's; amsgrad.
// 4. A step increments the version counters of the parameters that it changes. (libtorch's SGD does not.)
//
// The loop uses the threads that libtorch may use (at::set_num_threads), for parameters of more than 32768 elements.
// As with libtorch's, only one thread at a time may call an optimizer, and nobody else may change its parameters then.
#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

namespace lockstep {

class Adam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

class AdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

class SGD : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace lockstep
