#include "lockstep/train/pipeline_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/schedule/csv.h"
#include "lockstep/parallel/pipeline/schedule/tags.h"
#include "lockstep/parallel/pipeline/schedule/verify.h"
#include "lockstep/training.h"

namespace lockstep::train {
namespace {

constexpr int kDefaultMicrobatches = 8;

bool is_file(const std::string& schedule) { return schedule.ends_with(".csv"); }

// The first setting that only a pipeline has, or null.
const char* setting_of_a_pipeline(const PipelineConfig& p) {
  if (!p.schedule.empty()) return "`schedule`";
  if (p.stages != 0) return "`stages`";
  if (p.microbatches != 0) return "`microbatches`";
  if (p.virtual_stages) return "`virtual_stages`";
  if (p.recompute) return "`recompute`";
  if (p.emulate) return "`emulate`";
  return nullptr;
}

void check_other_strategy(const TrainingConfig& c) {
  const char* setting = setting_of_a_pipeline(c.pipeline);
  const bool cut_by_hand = c.strategy == StrategyKind::manual_pipeline;
  if (setting == nullptr && c.pipeline.balance && !cut_by_hand) setting = "`balance`";
  if (setting == nullptr) return;
  throw UsageError(cut_by_hand ? fmt::format("manual-pipeline has two stages and one microbatch, and no {}", setting)
                               : fmt::format("{} has no pipeline, and {} is of one", name_of(c.strategy), setting),
                   "`strategy` pipeline");
}

// Takes the numbers of ranks and microbatches from the file. Settings that were given must agree with it.
void take_from_file(PipelineConfig& p) {
  std::error_code ignored;
  if (std::filesystem::exists(p.schedule, ignored) && !std::filesystem::is_regular_file(p.schedule, ignored))
    throw UsageError(fmt::format("`schedule` {} is not a regular file", p.schedule), "a CSV file");
  const pipeline::Schedule schedule = pipeline::read_csv(p.schedule);
  const auto fill = [&](int& asked, int has, const char* setting, const char* what) {
    if (asked != 0 && asked != has)
      throw UsageError(fmt::format("{} is {}, but {} has {} {}", setting, asked, p.schedule, has, what),
                       fmt::format("{} {}", setting, has));
    asked = has;
  };
  fill(p.stages, schedule.ranks, "`stages`", "ranks, one line each");
  fill(p.microbatches, schedule.microbatches, "`microbatches`", "microbatches");
  if (p.virtual_stages && *p.virtual_stages != pipeline::virtual_stages(schedule))
    throw UsageError(fmt::format("`virtual_stages` is {}, but {} has {} stages on a rank", *p.virtual_stages,
                                 p.schedule, pipeline::virtual_stages(schedule)),
                     "no `virtual_stages`");
}

void check_shape(TrainingConfig& c) {
  PipelineConfig& p = c.pipeline;
  if (c.ranks == 0) c.ranks = p.stages == 0 ? 2 : p.stages;
  if (p.stages == 0) p.stages = c.ranks;
  if (c.ranks % p.stages != 0)
    throw UsageError(fmt::format("{} ranks are no whole number of pipelines of {} stages", c.ranks, p.stages),
                     c.ranks < p.stages ? fmt::format("`ranks` {}", p.stages)
                                        : fmt::format("`ranks` {}", c.ranks - c.ranks % p.stages));
}

// Can be called only when the batch is known.
void check_microbatches(TrainingConfig& c) {
  PipelineConfig& p = c.pipeline;
  const std::int64_t samples = c.batch / c.replicas();
  if (p.microbatches == 0)
    p.microbatches = static_cast<int>(std::clamp<std::int64_t>(samples, 1, kDefaultMicrobatches));
  if (p.microbatches > samples)
    throw UsageError(
        c.replicas() == 1 ? fmt::format("{} microbatches of a batch of {} samples", p.microbatches, c.batch)
                          : fmt::format("{} microbatches of the {} samples that each of {} pipelines has",
                                        p.microbatches, samples, c.replicas()),
        is_file(p.schedule) ? fmt::format("`batch` {}", p.microbatches * c.replicas())
                            : fmt::format("`microbatches` {}, or `batch` {}", samples, p.microbatches * c.replicas()));
}

// Throws the same error as partition(), but before any rank has started.
void check_layers(const model::ModelConfig& model, int stages) {
  if (stages > model.layers()) pipeline::refuse_stages(stages, model.layers());
}

// Two stages on different ranks cannot train one weight.
void check_tied(const TrainingConfig& c, int stages) {
  if (c.model.kind != model::ModelKind::transformer || !c.model.transformer.tied || stages == 1) return;
  const char* one_stage = c.strategy != StrategyKind::pipeline ? "`strategy` single"
                          : c.pipeline.stages > 1              ? "`stages` 1"
                                                               : "`schedule` 1f1b";
  throw UsageError(fmt::format("with `tied`, the embedding (0.token.weight) and the output ({}.weight) are one "
                               "parameter, and {} stages can't share it",
                               c.model.layers() - 1, stages),
                   fmt::format("without `tied`, or {}", one_stage));
}

void check_choices(const TrainingConfig& c) {
  const PipelineConfig& p = c.pipeline;
  if (c.accumulate > 1)
    throw UsageError(fmt::format("`accumulate` {}: a pipeline adds up its microbatches", c.accumulate),
                     fmt::format("`microbatches` {}", c.accumulate));
  if (p.emulate && p.recompute)
    throw UsageError("emulated compute has nothing to compute again, and `recompute` is set",
                     "a longer I: `emulate` 10ms,20ms,10ms");
  if (p.emulate && c.replicas() > 1)
    throw UsageError(fmt::format("emulated compute has no gradients for {} pipelines to average", c.replicas()),
                     fmt::format("`ranks` {}", p.stages));
  if (p.emulate && (!c.load.empty() || !c.save.empty() || c.has_epochs()))
    throw UsageError("emulated compute trains nothing, so there is nothing to load, to save or to test",
                     "without `load`, `save` and data sets");
}

}  // namespace

void check_stages(TrainingConfig& c) {
  PipelineConfig& p = c.pipeline;
  if (c.strategy != StrategyKind::pipeline) return check_other_strategy(c);
  if (p.schedule.empty()) p.schedule = "1f1b";
  if (is_file(p.schedule)) take_from_file(p);
  check_shape(c);
}

void check_pipeline(TrainingConfig& c) {
  const bool cut_by_hand = c.strategy == StrategyKind::manual_pipeline;
  if (cut_by_hand) check_tied(c, 2);
  if (!c.pipeline.balance && (cut_by_hand || c.strategy == StrategyKind::pipeline))
    c.pipeline.balance = pipeline::Balance::count;
  if (c.strategy != StrategyKind::pipeline) return;
  check_microbatches(c);
  check_choices(c);
  const pipeline::Schedule schedule = schedule_of(c);
  check_layers(c.model, schedule.stages);
  check_tied(c, schedule.stages);
  pipeline::check_tags(schedule);
  (void)pipeline::verify(schedule);
}

std::vector<pipeline::Times> emulated_times(const pipeline::Times& of_a_rank, const pipeline::Schedule& schedule) {
  std::vector<double> stages(static_cast<std::size_t>(schedule.ranks));
  for (const Rank rank : schedule.rank_of_stage) ++stages[index_of(rank)];
  std::vector<pipeline::Times> times;
  for (const Rank rank : schedule.rank_of_stage) {
    const double count = stages[index_of(rank)];
    times.push_back({of_a_rank.forward / count, of_a_rank.input / count, of_a_rank.weight / count});
  }
  return times;
}

pipeline::Schedule schedule_of(const TrainingConfig& c) {
  const PipelineConfig& p = c.pipeline;
  return is_file(p.schedule) ? pipeline::read_csv(p.schedule)
                             : pipeline::make_schedule(p.schedule, p.stages, p.microbatches, p.virtual_stages);
}

}  // namespace lockstep::train
