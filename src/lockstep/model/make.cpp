#include "lockstep/model.h"

#include <memory>
#include <unordered_set>

#include "lockstep/error.h"

namespace lockstep::model {

std::vector<Layer> layers_of(const ModelConfig& config) {
  if (config.kind == ModelKind::transformer) return transformer_layers(config.transformer);
  if (config.kind == ModelKind::cnn)
    return cnn_layers(config.channels, config.hidden, config.classes, config.image_side);
  return mlp_layers(config.dim, config.depth, config.outputs);
}

torch::nn::Sequential make_model(const ModelConfig& config) {
  std::shared_ptr<torch::nn::SequentialImpl> model;
  if (config.kind == ModelKind::transformer)
    model = std::make_shared<TransformerImpl>(config.transformer);
  else if (config.kind == ModelKind::cnn)
    model = std::make_shared<SimpleCNNImpl>(config.channels, config.hidden, config.classes, config.image_side);
  else
    model = std::make_shared<FullMLPImpl>(config.dim, config.depth, config.outputs);
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
