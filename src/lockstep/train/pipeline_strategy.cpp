#include "lockstep/train/pipeline_strategy.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/pipeline/emulated.h"
#include "lockstep/parallel/pipeline/executor.h"
#include "lockstep/parallel/pipeline/placed.h"
#include "lockstep/parallel/pipeline/replicated.h"
#include "lockstep/parallel/pipeline/sharded_mlp.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/ddp_options.h"
#include "lockstep/train/feed.h"
#include "lockstep/train/optimizer.h"

namespace lockstep::train {
namespace {

using pipeline::Kind;
using torch::Tensor;

constexpr const char* kCategory = "train";

pipeline::Balance balance_of(const PipelineConfig& config) {
  if (config.balance == "parameters") return pipeline::Balance::parameters;
  return config.balance == "time" ? pipeline::Balance::time : pipeline::Balance::count;
}

// The numbers of the stages of the rank at `position` in its pipeline, in ascending order.
std::vector<int> stages_of(const pipeline::Schedule& schedule, Rank position) {
  std::vector<int> numbers;
  for (int stage = 0; stage < schedule.stages; ++stage)
    if (schedule.rank_of_stage[static_cast<std::size_t>(stage)] == position) numbers.push_back(stage);
  return numbers;
}

class Pipeline final : public Strategy {
 public:
  explicit Pipeline(const Setup& setup)
      : setup_(setup),
        replicas_(setup.config.replicas()),
        replica_(setup.comm.rank() / setup.config.pipeline.stages),
        schedule_(schedule_of(setup.config)),
        mine_(stages_of(schedule_, setup.comm.rank() % setup.config.pipeline.stages)),
        pipe_(setup.comm.split(replica_, setup.comm.rank()).value()),
        peers_(setup.comm.split(pipe_.rank(), setup.comm.rank()).value()),
        executor_(pipe_, schedule_, make(),
                  [this](const Tensor& output, const Tensor& target) { return mean_loss(output, target) * weight_; }) {
    record_.lowered = executor_.schedule();
    if (!setup.config.pipeline.emulate)
      optimizer_ = make_optimizer(setup.config.optimizer, setup.config.lr, setup.model->parameters());
  }

  StepResult step(std::span<const data::Batch> microbatches) override {
    const data::Batch& batch = microbatches.front();
    if (batch.rows() != rows_ && std::exchange(rows_, batch.rows()) != kNone) executor_.new_shapes();
    weight_ = batch.share() * replicas_;

    StepResult result;
    PipelineRecord::Step record;
    const trace::Span span(setup_.comm.recorder(), "step", kCategory);
    const auto began = Clock::now();
    if (optimizer_) optimizer_->zero_grad();
    pipeline::StepResult made = executor_.step(batch.inputs.tensor_split(schedule_.microbatches),
                                               batch.targets.tensor_split(schedule_.microbatches));
    const auto drained = Clock::now();
    {
      const trace::Span averaging(setup_.comm.recorder(), "averaging", kCategory);
      after_the_list("averages gradients with the other pipelines", [&] {
        for (const auto& stage : replicated_) stage->finish();
      });
    }
    record.averaging = seconds_since(drained);
    for (const auto& stage : replicated_) record.reducing += stage->statistics().communication;
    Lap lap;
    if (setup_.before_optimizer) setup_.before_optimizer();
    const double looking = lap();  // not part of the step
    if (optimizer_) {
      const trace::Span optimizing(setup_.comm.recorder(), "optimizer", kCategory);
      optimizer_->step();
    }
    record.optimizer = lap();
    result.seconds = record.seconds = seconds_since(began) - looking;

    if (made.loss) result.loss = *made.loss / replicas_;
    result.shown = tell_first_rank(made.loss);
    ++step_;
    result.phases = phases_of(made.timeline, record.optimizer);
    record.timeline = std::move(made.timeline);
    remember(std::move(record), made.peak_activations);
    return result;
  }

  torch::nn::SequentialImpl& model() override { return *setup_.model; }
  Tensor infer(const Tensor& inputs) override { return executor_.infer(inputs); }
  const PipelineRecord* record() const override { return &record_; }

 private:
  static constexpr std::int64_t kNone = -1;

  std::vector<std::shared_ptr<pipeline::Stage>> make() {
    const PipelineConfig& config = setup_.config.pipeline;
    const auto emulated = config.emulate ? emulated_times(*config.emulate, schedule_) : std::vector<pipeline::Times>();
    std::vector<std::shared_ptr<pipeline::Stage>> stages;
    for (std::size_t i = 0; i < mine_.size(); ++i) {
      const pipeline::StageOptions options{.first = mine_[i] == 0, .recompute = config.recompute};
      const torch::nn::Sequential& modules = setup_.stages[i];
      if (config.emulate) {
        stages.push_back(std::make_shared<pipeline::EmulatedStage>(
            modules, emulated[static_cast<std::size_t>(mine_[i])], options.first));
      } else if (replicas_ > 1) {
        replicated_.push_back(std::make_shared<pipeline::ReplicatedStage>(modules, options, schedule_.microbatches,
                                                                          peers_, ddp_options(setup_.config)));
        stages.push_back(replicated_.back());
      } else {
        stages.push_back(std::make_shared<pipeline::SequentialStage>(*modules, options));
      }
    }
    return stages;
  }

  // Runs `body`. Its errors say that all actions are done, and what the rank does after them.
  template <typename Body>
  void after_the_list(const char* what, const Body& body) const {
    pipeline::placed(
        setup_.comm, [&] { return fmt::format("{} in step {} (after its last action)", what, step_); }, body);
  }

  // Sends the loss from the rank of the last stage, where it is computed, to rank 0, which shows it. Not part of the
  // step.
  std::optional<double> tell_first_rank(const std::optional<double>& loss) {
    if (replica_ != 0) return {};
    double shown = loss.value_or(0);
    const Rank last = schedule_.rank_of_stage.back();
    const Buffer buffer(&shown, 1, DType::float64);
    after_the_list("tells rank 0 the loss", [&] {
      if (last != 0 && setup_.comm.rank() == last) setup_.comm.send(0, buffer);
      if (last != 0 && setup_.comm.rank() == 0) setup_.comm.recv(last, buffer);
    });
    return weight_ > 0 ? shown / weight_ : shown;
  }

  // Counts only this rank's own work. How much of its waiting was communication can be told only from the times of all
  // ranks (utilisation.h).
  static Phases phases_of(const pipeline::Timeline& timeline, double optimizer) {
    Phases phases{.optimizer = optimizer};
    for (const auto& [action, began, ended] : timeline.moments)
      if (!pipeline::is_message(action.kind))
        (action.kind == Kind::F ? phases.forward : phases.backward) +=
            std::chrono::duration<double>(ended - began).count();
    return phases;
  }

  void remember(PipelineRecord::Step step, int peak_activations) {
    record_.peak_activations = std::max(record_.peak_activations, peak_activations);
    record_.steps.push_back(std::move(step));
    if (record_.steps.size() > PipelineRecord::kSteps) record_.steps.pop_front();
  }

  Setup setup_;
  const int replicas_, replica_;
  const pipeline::Schedule schedule_;
  const std::vector<int> mine_;  // numbers of this rank's stages
  Communicator pipe_;            // the ranks of this pipeline
  Communicator peers_;           // the ranks that have the same stages
  std::vector<std::shared_ptr<pipeline::ReplicatedStage>> replicated_;
  pipeline::Executor executor_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::int64_t rows_ = kNone;
  std::int64_t step_ = 0;
  double weight_ = 1;  // scales this pipeline's mean loss so that the mean over pipelines is the mean over all samples
  PipelineRecord record_;
};

}  // namespace

std::vector<pipeline::Range> cut_of(const TrainingConfig& config, int stages) {
  std::vector<pipeline::ModuleCost> costs = pipeline::costs_of(model::layers_of(config.model));
  const auto& seconds = config.pipeline.module_seconds;
  for (std::size_t i = 0; i < std::min(costs.size(), seconds.size()); ++i) costs[i].seconds = seconds[i];
  return pipeline::partition(costs, stages, balance_of(config.pipeline));
}

std::vector<torch::nn::Sequential> make_stages(const TrainingConfig& config, Rank rank) {
  const pipeline::Schedule schedule = schedule_of(config);
  const std::vector<pipeline::Range> ranges = cut_of(config, schedule.stages);
  const std::vector<model::Layer> layers = model::layers_of(config.model);
  std::vector<torch::nn::Sequential> stages;
  for (const int stage : stages_of(schedule, rank % config.pipeline.stages)) {
    torch::manual_seed(config.seed);
    stages.push_back(pipeline::make_stage(layers, ranges[static_cast<std::size_t>(stage)]));
  }
  return stages;
}

torch::nn::Sequential joined(const std::vector<torch::nn::Sequential>& stages) {
  torch::nn::Sequential all;
  for (const torch::nn::Sequential& stage : stages) {
    const auto names = stage->named_children();
    for (std::size_t i = 0; i < names.size(); ++i)
      all->push_back(names[i].key(), *(stage->begin() + static_cast<std::ptrdiff_t>(i)));
  }
  return all;
}

Choice tensors_elsewhere(const TrainingConfig& config, Rank rank) {
  const pipeline::Schedule schedule = schedule_of(config);
  const std::vector<pipeline::Range> ranges = cut_of(config, schedule.stages);
  std::vector<bool> elsewhere;  // by module
  for (std::size_t stage = 0; stage < ranges.size(); ++stage)
    elsewhere.resize(static_cast<std::size_t>(ranges[stage].end),
                     schedule.rank_of_stage[stage] != rank % config.pipeline.stages);
  return [elsewhere](const std::string& tensor) {
    const std::size_t digits = tensor.find('.');
    if (digits == 0 || digits > 9 || tensor.find_first_not_of("0123456789") != digits) return false;
    const auto module = static_cast<std::size_t>(std::stoll(tensor));
    return module < elsewhere.size() && elsewhere[module];
  };
}

std::vector<double> measure_modules(const TrainingConfig& config) {
  const std::int64_t parts = std::int64_t{config.replicas()} * std::max(1, config.pipeline.microbatches);
  return pipeline::measure(model::layers_of(config.model),
                           sample_of(config, std::max<std::int64_t>(1, config.batch / parts)).inputs);
}

std::unique_ptr<Strategy> make_pipeline(const Setup& setup) { return std::make_unique<Pipeline>(setup); }

}  // namespace lockstep::train
