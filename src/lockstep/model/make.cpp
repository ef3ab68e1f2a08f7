#include "lockstep/model/make.h"

#include <array>
#include <memory>
#include <string>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/model/cnn.h"
#include "lockstep/model/mlp.h"

namespace lockstep::model {

torch::nn::Sequential make_model(const ModelConfig& config) {
  static const std::array<std::string, 2> kNames{"mlp", "cnn"};
  std::shared_ptr<torch::nn::SequentialImpl> model;
  if (config.name == kNames[0])
    model = std::make_shared<FullMLPImpl>(config.dim, config.depth, config.outputs);
  else if (config.name == kNames[1])
    model = std::make_shared<SimpleCNNImpl>(config.channels, config.hidden, config.classes, config.image_side);
  else
    throw UsageError(fmt::format("no model '{}'", config.name),
                     closest(config.name, kNames).value_or(fmt::format("one of {}", fmt::join(kNames, ", "))));
  return {model};
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
