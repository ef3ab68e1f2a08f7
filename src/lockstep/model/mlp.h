// FullMLP: the whole of a plain network on one rank.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace lockstep::model {

// `depth` times Linear(dim, dim) and ReLU, then Linear(dim, outputs).
//
// Weights are drawn from torch's default generator, layer by layer, as Python's nn.Sequential of the same layers draws
// them; parameters have its names (0.weight, 0.bias, 2.weight, ...). A size below 1 is a UsageError.
struct FullMLPImpl : torch::nn::SequentialImpl {
  FullMLPImpl(std::int64_t dim, std::int64_t depth, std::int64_t outputs = 2);
};
TORCH_MODULE(FullMLP);

}  // namespace lockstep::model
