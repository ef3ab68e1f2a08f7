// torch::optim::Adam in one pass over memory instead of ten.
//
// libtorch's Adam is a dozen tensor operations for each parameter. Each is a call that costs microseconds, and a sweep
// over memory: for small parameters the calls dominate, for large ones the sweeps. Here one loop reads parameter,
// gradient and both averages once, and writes three of them once. 16 x 128 on one core: 0.2 ms instead of 0.9.
//
// Same options, same state (it can be saved and loaded by either), and the same bits: the loop rounds where libtorch's
// operations round. Parameters that it does not handle (not float32, strides that differ, amsgrad) take libtorch's way.
#pragma once

#include <torch/optim/adam.h>

namespace lockstep::train {

class Adam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace lockstep::train
