#include "lockstep/train/footprint.h"

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep::train {
namespace {

// Numbers that an optimizer keeps for each parameter.
double numbers_kept(OptimizerKind optimizer) {
  if (optimizer == OptimizerKind::sgd) return 0;
  return optimizer == OptimizerKind::adam || optimizer == OptimizerKind::adamw ? 2 : 1;
}

}  // namespace

Footprint footprint(const TrainingConfig& config, double parameters, int local_ranks) {
  const bool pipeline = config.strategy == StrategyKind::pipeline;
  if (pipeline && config.pipeline.emulate)
    return {.weights = parameters * sizeof(float) * local_ranks / config.pipeline.stages};
  // Copies of the model on this host.
  const double copies = config.strategy == StrategyKind::manual ? 2
                        : pipeline ? static_cast<double>(local_ranks) / config.pipeline.stages
                                   : local_ranks;
  const double one = parameters * sizeof(float);
  Footprint all{
      .weights = copies * one, .gradients = copies * one, .state = copies * one * numbers_kept(config.optimizer)};
  if (config.strategy == StrategyKind::sharded) {  // weights and state exist once for all ranks
    all.weights = one;
    all.state = one * numbers_kept(config.optimizer) * local_ranks / config.ranks;
  }
  return all;
}

void check_footprint(const TrainingConfig& config, double parameters, int local_ranks, double available) {
  const Footprint needed = footprint(config, parameters, local_ranks);
  if (needed.total() <= available) return;
  constexpr double kGB = 1e9;
  throw UsageError(
      fmt::format("{} has {:.3g} parameters; {} on {} of this host needs {:.1f} GB: {:.1f} for weights, {:.1f} for "
                  "gradients, {:.1f} for "
                  "the state of {}; {:.1f} GB can be had",
                  config.describe_model(), parameters, name_of(config.strategy),
                  local_ranks == 1 ? "1 rank" : fmt::format("{} ranks", local_ranks), needed.total() / kGB,
                  needed.weights / kGB, needed.gradients / kGB, needed.state / kGB, name_of(config.optimizer),
                  available / kGB),
      config.strategy == StrategyKind::sharded || config.strategy == StrategyKind::pipeline
          ? "a smaller model, fewer ranks, or `optimizer` sgd"
          : "a smaller model, fewer ranks, `strategy` sharded or pipeline, or `optimizer` sgd");
}

}  // namespace lockstep::train
