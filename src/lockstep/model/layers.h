// A model as the list of its modules, before any of them is made. So a rank can make some of them and keep no other,
// and everybody can tell what a module costs without making it.
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
  std::int64_t parameters = 0;
  std::function<torch::nn::AnyModule()> make;  // draws its weights from torch's default generator
};

// In the order of the model's Sequential: number i is named "i" there. A size below 1 is a UsageError, and so are
// channels that use up the image.
std::vector<Layer> mlp_layers(std::int64_t dim, std::int64_t depth, std::int64_t outputs);
std::vector<Layer> cnn_layers(const std::vector<std::int64_t>& channels, std::int64_t hidden, std::int64_t classes,
                              std::int64_t image_side);

// Those of the model that make_model makes.
std::vector<Layer> layers_of(const ModelConfig& config);

// Of the model, when it will have been made.
Size size_of(std::span<const Layer> layers);

}  // namespace lockstep::model
