#include "lockstep/train/pipeline_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/run/parts.h"
#include "lockstep/pipeline.h"
#include "lockstep/trace.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/ddp_options.h"
#include "lockstep/train/feed.h"
#include "lockstep/train/optimizer.h"

namespace lockstep::train {
namespace {

class PipelineStrategy final : public Strategy {
 public:
  explicit PipelineStrategy(const Setup& setup)
      : setup_(setup), pipeline_(*setup.parts, setup.comm, pipeline_options(setup.config)) {
    record_.lowered = pipeline_.schedule();
    if (!setup.config.pipeline.emulate)
      optimizer_ = make_optimizer(setup.config.optimizer, setup.config.lr, pipeline_.parameters());
  }

  StepResult step(std::span<const data::Batch> microbatches) override {
    const data::Batch& batch = microbatches.front();
    StepResult result;
    PipelineRecord::Step record;
    const trace::Span span(setup_.comm.recorder(), "step", "train");
    const auto began = Clock::now();
    if (optimizer_) optimizer_->zero_grad();
    const double loss = pipeline_.step_share(batch.inputs, batch.targets, batch.whole, mean_loss);
    Stopwatch lap;
    if (setup_.before_optimizer) setup_.before_optimizer();
    const double looking = lap();  // not part of the step
    if (optimizer_) {
      const trace::Span optimizing(setup_.comm.recorder(), "optimizer", "train");
      optimizer_->step();
    }
    record.optimizer = lap();
    result.seconds = record.seconds = seconds_since(began) - looking;

    const PipelineStatistics& made = pipeline_.statistics();
    if (setup_.comm.rank() == 0) result.loss = loss;  // the sum over ranks is the loss of all samples
    result.shown = made.losses.front();
    result.phases = {.forward = made.forward, .backward = made.backward, .optimizer = record.optimizer};
    record.averaging = made.exposed_reductions;
    record.reducing = made.reductions;
    record.timeline = made.timeline;
    remember(std::move(record), made.peak_activations);
    return result;
  }

  torch::nn::SequentialImpl& model() override { return *setup_.model; }
  torch::Tensor infer(const torch::Tensor& inputs) override { return pipeline_.infer_at_last(inputs); }
  const PipelineRecord* record() const override { return &record_; }

 private:
  void remember(PipelineRecord::Step step, int peak_activations) {
    record_.peak_activations = std::max(record_.peak_activations, peak_activations);
    record_.steps.push_back(std::move(step));
    if (record_.steps.size() > PipelineRecord::kSteps) record_.steps.pop_front();
  }

  Setup setup_;
  Pipeline pipeline_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  PipelineRecord record_;
};

}  // namespace

PipelineOptions pipeline_options(const TrainingConfig& config) {
  const PipelineConfig& p = config.pipeline;
  PipelineOptions options;
  options.schedule = p.schedule;
  options.microbatches = p.microbatches;
  options.ranks = p.stages;
  options.virtual_stages = p.virtual_stages;
  options.balance = p.balance.value_or(pipeline::Balance::count);
  options.module_seconds = p.module_seconds;
  options.recompute = p.recompute;
  options.ddp = ddp_options(config);
  options.emulate = p.emulate;
  return options;
}

std::vector<pipeline::Range> cut_of(const TrainingConfig& config, int stages) {
  std::vector<pipeline::ModuleCost> costs = pipeline::count_parameters(model::layers_of(config.model));
  const auto& seconds = config.pipeline.module_seconds;
  for (std::size_t i = 0; i < std::min(costs.size(), seconds.size()); ++i) costs[i].seconds = seconds[i];
  return pipeline::partition(costs, stages, config.pipeline.balance.value_or(pipeline::Balance::count));
}

pipeline::Parts make_parts(const TrainingConfig& config, Rank rank) {
  torch::manual_seed(config.seed);
  return pipeline::make_parts(model::layers_of(config.model), rank, config.ranks, pipeline_options(config));
}

std::vector<double> measure_modules(const TrainingConfig& config) {
  const std::int64_t parts = std::int64_t{config.replicas()} * std::max(1, config.pipeline.microbatches);
  return pipeline::measure(model::layers_of(config.model),
                           sample_of(config, std::max<std::int64_t>(1, config.batch / parts)).inputs);
}

std::unique_ptr<Strategy> make_pipeline(const Setup& setup) { return std::make_unique<PipelineStrategy>(setup); }

}  // namespace lockstep::train
