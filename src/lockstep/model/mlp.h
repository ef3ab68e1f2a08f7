// FullMLP: a plain multilayer perceptron, whole on one rank.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace lockstep::model {

// `depth` times Linear(dim, dim) and ReLU, then Linear(dim, outputs).
//
// Weights are drawn from torch's default generator, layer by layer, as Python's nn.Sequential of the same layers draws
// them, and parameters have the names that they have there (0.weight, 0.bias, 2.weight, ...). Throws UsageError if a
// size is below 1, if `depth` is too large, or if the weights do not fit in this machine's memory.
struct FullMLPImpl : torch::nn::SequentialImpl {
  FullMLPImpl(std::int64_t dim, std::int64_t depth, std::int64_t outputs = 2);
};
TORCH_MODULE(FullMLP);

}  // namespace lockstep::model
