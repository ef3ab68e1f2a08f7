#include "lockstep/parallel/data/module_checks.h"

#include <fmt/format.h>
#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::parallel {

void ModuleChecks::check_registered() {
  if (!registered_.changed()) return;
  const auto has = [](const std::vector<Named>& all, const torch::Tensor& one) {
    return std::any_of(all.begin(), all.end(), [&](const Named& named) { return named.tensor.is_same(one); });
  };
  const ModelTensors& before = model_.tensors;
  const ModelTensors now = tensors_of(model_.module);
  const char* const hint = "a new DistributedDataParallel after the last change of the module";
  for (const auto& [name, tensor] : now.trained)
    if (!has(before.trained, tensor) && !has(before.frozen, tensor))
      throw UsageError(fmt::format("rank {}: {} was registered after DistributedDataParallel was made, so nobody would "
                                   "average its gradient",
                                   model_.comm.world_rank(), name),
                       hint);
  for (const auto& [name, tensor] : before.trained)
    if (!has(now.trained, tensor) && !has(now.frozen, tensor))
      throw UsageError(fmt::format("rank {}: {} was taken out of the module, or replaced, after "
                                   "DistributedDataParallel was made",
                                   model_.comm.world_rank(), name),
                       hint);
  registered_ = Registered(model_.module);
}

void ModuleChecks::check_types() const {
  const std::vector<Named>& trained = model_.tensors.trained;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const at::ScalarType before = model_.gradients.place(i).scalar_type();
    if (trained[i].tensor.scalar_type() != before)
      throw UsageError(fmt::format("{} was {} when DistributedDataParallel was made and is {} now", trained[i].name,
                                   c10::toString(before), c10::toString(trained[i].tensor.scalar_type())),
                       "module.to() before DistributedDataParallel is made");
  }
  for (const auto& [name, tensor] : model_.tensors.frozen)
    if (tensor.requires_grad())
      throw UsageError(fmt::format("{} was frozen when DistributedDataParallel was made and requires a gradient now, "
                                   "which nobody would average",
                                   name),
                       "a new DistributedDataParallel after requires_grad_()");
}

}  // namespace lockstep::parallel
