#include "lockstep/model/make.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <array>
#include <memory>
#include <string>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/model/cnn.h"
#include "lockstep/model/layers.h"
#include "lockstep/model/mlp.h"

namespace lockstep::model {

namespace {

const std::array<std::string, 2> kNames{"mlp", "cnn"};

[[noreturn]] void refuse(const std::string& name) {
  throw UsageError(fmt::format("no model '{}'", name),
                   closest(name, kNames).value_or(fmt::format("one of {}", fmt::join(kNames, ", "))));
}

}  // namespace

std::vector<Layer> layers_of(const ModelConfig& config) {
  if (config.name == kNames[0]) return mlp_layers(config.dim, config.depth, config.outputs);
  if (config.name == kNames[1]) return cnn_layers(config.channels, config.hidden, config.classes, config.image_side);
  refuse(config.name);
}

torch::nn::Sequential make_model(const ModelConfig& config) {
  std::shared_ptr<torch::nn::SequentialImpl> model;
  if (config.name == kNames[0])
    model = std::make_shared<FullMLPImpl>(config.dim, config.depth, config.outputs);
  else if (config.name == kNames[1])
    model = std::make_shared<SimpleCNNImpl>(config.channels, config.hidden, config.classes, config.image_side);
  else
    refuse(config.name);
  return {model};
}

Size size_of(std::span<const Layer> layers) {
  Size size{};
  for (const Layer& layer : layers) size.parameters += layer.parameters;
  size.gradient_bytes = static_cast<std::size_t>(size.parameters) * sizeof(float);
  return size;
}

Size size_of(const torch::nn::Module& module) {
  Size size{};
  std::unordered_set<const at::TensorImpl*> seen;
  for (const torch::Tensor& parameter : module.parameters()) {
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    size.parameters += parameter.numel();
    if (parameter.requires_grad()) size.gradient_bytes += parameter.nbytes();
  }
  return size;
}

}  // namespace lockstep::model
