// Makes the optimizer of a training run. SGD, Adam and AdamW are Lockstep's own (lockstep/optimizer.h), and the
// others libtorch's.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "lockstep/kinds.h"

namespace lockstep::train {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(OptimizerKind kind, double lr,
                                                        std::vector<torch::Tensor> parameters);

// What zero_grad() does since libtorch 2.0. In 1.13 it keeps the gradients and fills them with zeros, to which backward
// then adds.
void drop_gradients(torch::optim::Optimizer& optimizer);

}  // namespace lockstep::train
