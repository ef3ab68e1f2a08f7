#include "lockstep/train/optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>

#include <utility>

#include "lockstep/error.h"
#include "lockstep/optimizer.h"

namespace lockstep::train {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(OptimizerKind kind, double lr,
                                                        std::vector<torch::Tensor> parameters) {
  using torch::optim::Adagrad, torch::optim::AdagradOptions, torch::optim::AdamOptions, torch::optim::AdamWOptions,
      torch::optim::RMSprop, torch::optim::RMSpropOptions, torch::optim::SGDOptions;
  switch (kind) {
    case OptimizerKind::sgd:
      return std::make_unique<SGD>(std::move(parameters), SGDOptions(lr));
    case OptimizerKind::momentum:
      return std::make_unique<SGD>(std::move(parameters), SGDOptions(lr).momentum(0.9));
    case OptimizerKind::adam:
      return std::make_unique<Adam>(std::move(parameters), AdamOptions(lr));
    case OptimizerKind::adamw:
      return std::make_unique<AdamW>(std::move(parameters), AdamWOptions(lr));
    case OptimizerKind::rmsprop:
      return std::make_unique<RMSprop>(std::move(parameters), RMSpropOptions(lr));
    case OptimizerKind::adagrad:
      return std::make_unique<Adagrad>(std::move(parameters), AdagradOptions(lr));
  }
  throw Error("an optimizer that no enumerator names");
}

void drop_gradients(torch::optim::Optimizer& optimizer) {
  for (auto& group : optimizer.param_groups())
    for (torch::Tensor& parameter : group.params()) parameter.mutable_grad().reset();
}

}  // namespace lockstep::train
