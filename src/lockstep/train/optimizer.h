// Optimizers by name. SGD, Adam and AdamW are Lockstep's own (lockstep/optim/optimizer.h), and the others libtorch's.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::train {

// `name` is sgd, momentum (sgd with momentum 0.9), adam, adamw, rmsprop or adagrad, with PyTorch's defaults. For any
// other name, throws a UsageError that suggests the nearest one.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, double lr,
                                                        std::vector<torch::Tensor> parameters);

}  // namespace lockstep::train
