// torch::optim::Adam in one pass over memory instead of ten.
//
// libtorch's Adam runs a dozen tensor operations for each parameter. Each operation is a call that costs microseconds,
// and a sweep over memory: for small parameters the calls dominate, for large ones the sweeps. Here one loop reads
// parameter, gradient and both averages once, and writes three of them once. 16 x 128 on one core: 0.2 ms instead of
// 0.9.
//
// It has the same options and the same state as libtorch's Adam, so each can load what the other has saved. It makes
// the same steps up to a rounding in the last bit: whether libtorch's operations fuse a product and a sum depends on
// its version, the processor and the place in a tensor. If there is a parameter that the loop does not handle (not
// float32, other strides than its gradient, amsgrad), libtorch's Adam makes the whole step.
#pragma once

#include <torch/optim/adam.h>

namespace lockstep::train {

class Adam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace lockstep::train
