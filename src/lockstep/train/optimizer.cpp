#include "lockstep/train/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/train/config.h"

namespace lockstep::train {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, double lr,
                                                        std::vector<torch::Tensor> parameters) {
  using torch::optim::Adagrad, torch::optim::AdagradOptions, torch::optim::AdamOptions, torch::optim::AdamWOptions,
      torch::optim::RMSprop, torch::optim::RMSpropOptions, torch::optim::SGDOptions;
  if (name == "sgd") return std::make_unique<SGD>(std::move(parameters), SGDOptions(lr));
  if (name == "momentum") return std::make_unique<SGD>(std::move(parameters), SGDOptions(lr).momentum(0.9));
  if (name == "adam") return std::make_unique<Adam>(std::move(parameters), AdamOptions(lr));
  if (name == "adamw") return std::make_unique<AdamW>(std::move(parameters), AdamWOptions(lr));
  if (name == "rmsprop") return std::make_unique<RMSprop>(std::move(parameters), RMSpropOptions(lr));
  if (name == "adagrad") return std::make_unique<Adagrad>(std::move(parameters), AdagradOptions(lr));
  throw UsageError(fmt::format("there is no optimizer '{}'", name),
                   closest(name, optimizers()).value_or(fmt::format("one of {}", fmt::join(optimizers(), ", "))));
}

}  // namespace lockstep::train
