#include "lockstep/model.h"

#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/error.h"
#include "lockstep/model/limits.h"

namespace lockstep::model {

std::vector<Layer> mlp_layers(std::int64_t dim, std::int64_t depth, std::int64_t outputs) {
  check_size("dim", dim);
  check_size("depth", depth);
  check_size("outputs", outputs);
  check_depth(depth);
  const auto linear = [dim](std::int64_t width) {
    return Layer{(dim + 1) * width, [dim, width] { return torch::nn::AnyModule(torch::nn::Linear(dim, width)); }};
  };
  std::vector<Layer> layers;
  for (std::int64_t layer = 0; layer < depth; ++layer) {
    layers.push_back(linear(dim));
    layers.push_back({0, [] { return torch::nn::AnyModule(torch::nn::ReLU()); }});
  }
  layers.push_back(linear(outputs));
  return layers;
}

FullMLPImpl::FullMLPImpl(std::int64_t dim, std::int64_t depth, std::int64_t outputs) {
  check_size("dim", dim);
  check_size("depth", depth);
  check_size("outputs", outputs);
  const double width = static_cast<double>(dim);
  check_fits(fmt::format("an MLP of depth {} and dim {}", depth, dim),
             static_cast<double>(depth) * (width + 1) * width + (width + 1) * static_cast<double>(outputs));
  for (const Layer& layer : mlp_layers(dim, depth, outputs)) push_back(layer.make());
}

}  // namespace lockstep::model
