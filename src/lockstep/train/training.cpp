#include "lockstep/training.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/cpu.h"
#include "lockstep/base/environment.h"
#include "lockstep/communicator.h"
#include "lockstep/error.h"
#include "lockstep/model.h"
#include "lockstep/parallel/pipeline/run/parts.h"
#include "lockstep/train/accuracy.h"
#include "lockstep/train/feed.h"
#include "lockstep/train/footprint.h"
#include "lockstep/train/gather.h"
#include "lockstep/train/memory.h"
#include "lockstep/train/pipeline_strategy.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/strategy.h"
#include "lockstep/transport/shm/region.h"
#include "lockstep/weights.h"
#include "lockstep/weights/digest.h"
#include "lockstep/weights/save_parts.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kFirstStepWithItsMemory = 3;

weights::Metadata metadata_of(const model::TransformerSizes& sizes) {
  weights::Metadata metadata{{"format", "pt"},
                             {"model", name_of(model::ModelKind::transformer)},
                             {"dim", std::to_string(sizes.dim)},
                             {"depth", std::to_string(sizes.depth)},
                             {"heads", std::to_string(sizes.heads)},
                             {"vocabulary", std::to_string(sizes.vocabulary)},
                             {"sequence", std::to_string(sizes.sequence)}};
  if (sizes.tied) metadata["tied"] = "true";
  return metadata;
}

// The metadata that names the model in a file of weights.
weights::Metadata metadata_of(const model::ModelConfig& model) {
  if (model.kind == model::ModelKind::mlp)
    return {{"format", "pt"},
            {"model", name_of(model.kind)},
            {"dim", std::to_string(model.dim)},
            {"depth", std::to_string(model.depth)}};
  if (model.kind == model::ModelKind::transformer) return metadata_of(model.transformer);
  return {{"format", "pt"},
          {"model", name_of(model.kind)},
          {"channels", fmt::format("{}", fmt::join(model.channels, ","))},
          {"hidden", std::to_string(model.hidden)}};
}

// Waits in the backward of every layer, before the gradient of its weight is there.
void wait_in_backward(const torch::nn::Module& model, double seconds) {
  std::set<const at::TensorImpl*> seen;  // a tied weight is listed twice
  for (const torch::Tensor& parameter : model.parameters())
    if (parameter.dim() > 1 && seen.insert(parameter.unsafeGetTensorImpl()).second)
      parameter.register_hook([time = std::chrono::duration<double>(seconds)](const torch::Tensor& gradient) {
        std::this_thread::sleep_for(time);
        return gradient;
      });
}

// A step frees and allocates the same tensors as the step before. By default, glibc returns large ones to the kernel,
// which then zeroes their pages again. Adam's step on 16 x 1024 took 94 ms that way, and takes 61 ms when the memory is
// kept.
void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest value that mallopt accepts
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

}  // namespace

struct Training::Impl {
  class Run;

  Impl(const TrainingConfig& config, Rank rank, int ranks);

  TrainingConfig config_;
  torch::nn::Sequential model_{nullptr};  // in a pipeline: this rank's stages
  std::optional<pipeline::Parts> parts_;  // only in a pipeline
  model::Size size_{};
  std::unique_ptr<Feed> feed_;
};

// A training while it runs. All functions are collective.
class Training::Impl::Run {
 public:
  Run(Impl& training, Communicator& comm, Progress& progress);
  Run(const Run&) = delete;

  bool has_steps() const { return made_ < training_.feed_->steps(); }
  void step();
  Result finish();

 private:
  void look_at_memory() {
    if (made_ + 1 >= kFirstStepWithItsMemory) mine_.pss = std::max(mine_.pss, pss_bytes());
  }

  Impl& training_;
  const TrainingConfig& config_ = training_.config_;
  Communicator& comm_;
  Progress& progress_;
  std::unique_ptr<Strategy> strategy_;
  RankReport mine_;
  const std::int64_t untimed_ = config_.untimed(training_.feed_->steps());
  std::int64_t made_ = 0;  // steps
  std::vector<double> accuracies_;
  double seconds_ = 0;
};

Training::Training(const TrainingConfig& config, Rank rank, int ranks)
    : impl_(std::make_unique<Impl>(config, rank, ranks)) {}
Training::~Training() = default;
Training::Training(Training&&) noexcept = default;
Training& Training::operator=(Training&&) noexcept = default;

Result Training::run(Communicator& comm) {
  Progress silent(-1, Progress::Style::plain, steps());
  return run(comm, silent);
}

Result Training::run(Communicator& comm, Progress& progress) {
  Impl::Run run(*impl_, comm, progress);
  while (run.has_steps()) run.step();
  return run.finish();
}

std::vector<Result> Training::run_in_turns(std::span<Training> trainings, Communicator& comm) {
  for (const Training& one : trainings)
    if (one.steps() != trainings.front().steps())
      throw UsageError(
          fmt::format("trainings of {} and {} steps cannot take turns", trainings.front().steps(), one.steps()),
          "the same `steps` for all");
  Progress silent(-1, Progress::Style::plain, trainings.empty() ? 0 : trainings.front().steps());
  std::deque<Impl::Run> runs;
  for (Training& one : trainings) runs.emplace_back(*one.impl_, comm, silent);
  while (!runs.empty() && runs.front().has_steps())
    for (Impl::Run& run : runs) {
      comm.barrier();  // so that none waits for what the previous one has left unfinished
      run.step();
    }
  std::vector<Result> results;
  for (Impl::Run& run : runs) results.push_back(run.finish());
  return results;
}

std::int64_t Training::parameters() const { return impl_->size_.parameters; }
std::size_t Training::gradient_bytes() const { return impl_->size_.gradient_bytes; }
std::int64_t Training::steps() const { return impl_->feed_->steps(); }

Training::Impl::Impl(const TrainingConfig& config, Rank rank, int ranks) : config_(config) {
  static std::mutex generator;
  const std::lock_guard lock(generator);
  torch::manual_seed(config.seed);
  weights::Choice elsewhere;
  if (config.strategy == StrategyKind::pipeline) {
    parts_ = make_parts(config, rank);
    model_ = parts_->joined();
    size_ = model::size_of(model::layers_of(config.model));
    elsewhere = parts_->elsewhere();
  } else {
    model_ = model::make_model(config.model);
    size_ = model::size_of(*model_);
  }
  if (config.layer_wait > 0) wait_in_backward(*model_, config.layer_wait);
  const int replicas = config.replicas();
  feed_ = std::make_unique<Feed>(config, rank / (ranks / replicas), replicas);
  if (!config.load.empty()) weights::load_weights(config.load, *model_, elsewhere);
}

Training::Impl::Run::Run(Impl& training, Communicator& comm, Progress& progress)
    : training_(training), comm_(comm), progress_(progress) {
  Setup setup{config_, training.model_, comm, training.parts_ ? &*training.parts_ : nullptr};
  if (config_.report_memory) setup.before_optimizer = [this] { look_at_memory(); };
  strategy_ = make_strategy(setup);
}

void Training::Impl::Run::step() {
  const auto began = Clock::now();
  Feed& feed = *training_.feed_;
  const data::Batch batch = feed.next();
  const StepResult made = strategy_->step(cut(batch, config_.accumulate));
  ++made_;
  mine_.steps.add(made);
  if (made_ > untimed_) strategy_->keep_backward();
  // The other ranks' parts of the loss are collected at the end, because a collective per step would be part of what is
  // measured.
  const double share = batch.share();
  const double loss = made.shown.value_or(share > 0 ? made.loss / share : made.loss);
  progress_.step(config_.pipeline.emulate ? std::nullopt : std::optional(loss), batch.whole);
  if (feed.test_set() && feed.at_end_of_epoch()) {
    strategy_->sync();
    accuracies_.push_back(accuracy(*strategy_, *feed.test_set(), comm_, config_.replicas()));
    progress_.say(fmt::format("epoch {}: accuracy {:.2f}%", accuracies_.size(), 100 * accuracies_.back()));
  }
  seconds_ += seconds_since(began);
}

Result Training::Impl::Run::finish() {
  progress_.finish();
  strategy_->sync();
  mine_.digest = weights::digest(strategy_->model().parameters());
  mine_.peak = peak_bytes();
  mine_.pipeline = strategy_->record();

  Result result = gather_results(mine_, config_, comm_);
  result.transport = comm_.transport();
  result.parameters = training_.size_.parameters;
  result.gradient_bytes = training_.size_.gradient_bytes;
  result.accuracies = accuracies_;
  result.seconds = seconds_;
  if (comm_.rank() == 0) result.backward = strategy_->backward_record();
  if (!config_.save.empty())
    weights::save_parts(config_.save, strategy_->model(), comm_, training_.parts_ ? config_.pipeline.stages : 1,
                        metadata_of(config_.model));
  comm_.barrier();  // nobody leaves before the weights are on the disk
  return result;
}

transport::Options transport_options(const TrainingConfig& config) {
  transport::Options options = transport::Options::from_environment();
  if (config.transport != TransportKind::automatic) options.kind = config.transport;
  return options;
}

comm::Options comm_options(const TrainingConfig& config) {
  comm::Options options = comm::Options::from_environment();
  if (config.algorithm != Algorithm::automatic) options.algorithm = config.algorithm;
  if (!config.trace.empty()) options.trace_file = config.trace;
  return options;
}

void check_host_memory(const TrainingConfig& config, int local_ranks) {
  check_footprint(config, static_cast<double>(model::size_of(model::layers_of(config.model)).parameters), local_ranks,
                  static_cast<double>(transport::shm::available_memory()));
}

void prepare_process(const TrainingConfig& config, int local_ranks) {
  keep_freed_memory();
  if (!env("OMP_NUM_THREADS")) limit_math_threads(threads_per_rank(local_ranks));
  at::set_num_threads(static_cast<int>(env_int("OMP_NUM_THREADS", 1, 1 << 16).value_or(1)));
  if (!config.flush_denormals) return;
  at::globalContext().setFlushDenormal(true);
  // Threads that exist already have their own mode.
  at::parallel_for(0, at::get_num_threads(), 1,
                   [](std::int64_t, std::int64_t) { at::globalContext().setFlushDenormal(true); });
}

}  // namespace lockstep::train
