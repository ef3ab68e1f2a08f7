// The function that computes the loss of a pipeline.
#pragma once

#include <torch/types.h>

#include <functional>

namespace lockstep {

// Returns the mean loss over the rows of `output`, a scalar.
using LossFunction = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& targets)>;

}  // namespace lockstep
