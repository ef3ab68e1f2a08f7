// libtorch's optimizers by name; Adam is ours, which makes the same steps in one pass (adam.h).
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::train {

// sgd, momentum (sgd with 0.9), adam, adamw, rmsprop or adagrad, with PyTorch's defaults. A UsageError names the
// nearest when there is none of that name.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, double lr,
                                                        std::vector<torch::Tensor> parameters);

}  // namespace lockstep::train
