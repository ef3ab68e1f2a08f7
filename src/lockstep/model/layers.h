// A model as the list of its modules, before any of them is made. So a rank can make only the modules that it needs,
// and the cost of a module is known without making it.
#pragma once

#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/model/config.h"
#include "lockstep/model/make.h"

namespace lockstep::model {

struct Layer {
  static constexpr std::int64_t kUnknown = -1;

  std::int64_t parameters = kUnknown;          // number of elements; kUnknown: the layer is made once to count them
  std::function<torch::nn::AnyModule()> make;  // draws its weights from torch's default generator
};

// The layers in the order of the model's Sequential, where layer i has the name "i". Throw UsageError if a size is
// below 1, if `depth` is too large, or if the image's side becomes 0 because `channels` has too many entries.
std::vector<Layer> mlp_layers(std::int64_t dim, std::int64_t depth, std::int64_t outputs);
std::vector<Layer> cnn_layers(const std::vector<std::int64_t>& channels, std::int64_t hidden, std::int64_t classes,
                              std::int64_t image_side);

// The layers of the model that make_model makes. Throws UsageError if there is no model of that name, and in the cases
// above.
std::vector<Layer> layers_of(const ModelConfig& config);

// The size of the model that has these layers.
Size size_of(std::span<const Layer> layers);

}  // namespace lockstep::model
