#include "lockstep/parallel/pipeline/pipeline.h"

#include <fmt/format.h>

#include <limits>
#include <mutex>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/tensor.h"
#include "lockstep/parallel/data/clip.h"
#include "lockstep/parallel/data/parameters.h"
#include "lockstep/parallel/pipeline/emulated.h"
#include "lockstep/parallel/pipeline/executor.h"
#include "lockstep/parallel/pipeline/generator.h"
#include "lockstep/parallel/pipeline/parts.h"
#include "lockstep/parallel/pipeline/placed.h"
#include "lockstep/parallel/pipeline/replicated.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/weights/safetensors.h"
#include "lockstep/weights/save_parts.h"

namespace lockstep {
namespace {

using pipeline::Parts;
using torch::Tensor;

constexpr Tag kBatchTag = 0;  // the first rank of a pipeline tells the others about the batch
constexpr Tag kLossTag = 1;   // the last stage tells all ranks the loss

Tensor chunk_of(const Tensor& whole, int pipelines, int number) {
  if (!whole.defined()) return {};
  const auto count = static_cast<std::size_t>(whole.size(0));
  return whole.narrow(0, static_cast<std::int64_t>(chunk_begin(count, pipelines, number)),
                      static_cast<std::int64_t>(chunk_size(count, pipelines, number)));
}

std::int64_t rows_of(const Tensor& tensor, const char* what) {
  if (tensor.dim() == 0)
    throw UsageError(fmt::format("a pipeline's {} have no dimension", what), "a tensor with one row per sample");
  return tensor.size(0);
}

// Rank 0 measures, because other ranks would measure other times, and tells the others.
template <typename Measure>
PipelineOptions with_seconds(PipelineOptions options, std::size_t modules, Communicator& comm, const Measure& measure) {
  if (options.balance != pipeline::Balance::time || !options.module_seconds.empty()) return options;
  options.module_seconds.resize(modules);
  if (comm.rank() == 0) {
    if (!options.sample.defined())
      throw UsageError("a balance by time needs a microbatch to measure with", "PipelineOptions::sample on rank 0");
    options.module_seconds = measure(options.sample);
  }
  comm.broadcast(options.module_seconds, 0);
  return options;
}

// Cuts a model that every rank has, and gives the ranks of the first pipeline the weights of rank 0. The other
// pipelines get them when they are made.
Parts cut_and_share(torch::nn::SequentialImpl& model, Communicator& comm, const PipelineOptions& options) {
  const parallel::ModelTensors tensors = parallel::tensors_of(model);
  parallel::compare_models(tensors, comm);
  const auto measure = [&](const Tensor& sample) {
    const pipeline::KeptGenerator kept;
    std::vector<Tensor> buffers;
    for (const auto& [name, buffer] : tensors.buffers) buffers.push_back(buffer.clone());
    std::vector<double> seconds;
    for (const pipeline::ModuleCost& cost : pipeline::measure(model, sample)) seconds.push_back(cost.seconds);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers.size(); ++i) tensors.buffers[i].tensor.copy_(buffers[i]);
    return seconds;
  };
  Parts parts =
      pipeline::cut_network(model, comm.rank(), comm.size(), with_seconds(options, model.size(), comm, measure));
  const torch::NoGradGuard no_grad;
  const auto children = model.named_children();
  for (std::size_t stage = 0; stage < parts.ranges.size(); ++stage) {
    const Rank owner = parts.schedule.rank_of_stage[stage];
    if (owner == 0 || (comm.rank() != 0 && comm.rank() != owner)) continue;
    for (std::int64_t i = parts.ranges[stage].begin; i < parts.ranges[stage].end; ++i)
      for (const auto& [name, tensor] : weights::tensors_of(*children[static_cast<std::size_t>(i)].value()))
        comm.rank() == 0 ? comm.send(owner, tensor, kBatchTag) : comm.recv(0, tensor, kBatchTag);
  }
  return parts;
}

// Makes this rank's layers from the state of rank 0's generator. If this rank's generator was in another state, it is
// put back there.
Parts make_and_keep(const std::vector<model::Layer>& layers, Communicator& comm, const PipelineOptions& options) {
  const auto measure = [&](const Tensor& sample) {
    const pipeline::KeptGenerator kept;
    return pipeline::measure(layers, sample);
  };
  const PipelineOptions checked = with_seconds(options, layers.size(), comm, measure);
  const Tensor own = pipeline::generator_state();
  Tensor first = own.clone();
  comm.broadcast(first, 0);

  static std::mutex one_at_a_time;  // ranks that are threads share the generator
  const std::lock_guard lock(one_at_a_time);
  const Tensor before = pipeline::generator_state();
  pipeline::set_generator_state(first);
  Parts parts = pipeline::make_parts(layers, comm.rank(), comm.size(), checked);
  if (!torch::equal(before, first)) pipeline::set_generator_state(before);
  return parts;
}

}  // namespace

class Pipeline::Impl {
 public:
  Impl(Parts parts, Communicator& comm, const PipelineOptions& options)
      : options_(options),
        parts_(std::move(parts)),
        all_(comm.duplicate(options.name)),
        number_(all_.rank() / parts_.schedule.ranks),
        pipelines_(all_.size() / parts_.schedule.ranks),
        ranks_(all_.split(number_, all_.rank(), options.name + ", its ranks").value()),
        replicas_(all_.split(ranks_.rank(), all_.rank(), options.name + ", ranks of a stage").value()),
        module_(parts_.joined()),
        executor_(ranks_, parts_.schedule, make_stages(),
                  [this](const Tensor& output, const Tensor& targets) { return (*loss_)(output, targets) * weight_; }) {
    executor_.on_loss([this](double scaled) { tell_loss(scaled); });
    executor_.before_first_forward([this] { compare_notes(); });
  }

  double step(const Tensor& inputs, const Tensor& targets, const LossFunction& loss) {
    BatchNote note{.rows = -1, .own_rows = -1};
    if (inputs.defined()) note.rows = rows_of(inputs, "inputs");
    if (targets.defined()) check_rows(rows_of(targets, "targets"), note.rows, "targets");
    if (note.rows >= 0) note.own_rows = own_share(note.rows);
    return run(chunk_of(inputs, pipelines_, number_), chunk_of(targets, pipelines_, number_), note, loss);
  }

  double step_share(const Tensor& inputs, const Tensor& targets, std::int64_t rows, const LossFunction& loss) {
    BatchNote note{.rows = rows, .own_rows = -1};
    if (inputs.defined()) note.own_rows = rows_of(inputs, "inputs");
    if (targets.defined()) check_rows(rows_of(targets, "targets"), note.own_rows, "targets");
    return run(inputs, targets, note, loss);
  }

  Tensor infer(const Tensor& inputs, bool everywhere) {
    const pipeline::Activation output = executor_.infer(inputs);
    if (!everywhere) return output.tensor();
    const Rank last = parts_.schedule.rank_of_stage.back();
    pipeline::Activation result = output;
    pipeline::placed(
        ranks_, [] { return std::string("passes on the output of an inference"); },
        [&] {
          if (ranks_.rank() != last) result = pipeline::receive_whole(all_, world_of(number_, last), kBatchTag);
          for (Rank rank = 0; ranks_.rank() == last && rank < ranks_.size(); ++rank)
            if (rank != last) pipeline::send_whole(all_, world_of(number_, rank), output, kBatchTag);
        });
    return result.tensor();
  }

  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    if (replicated_.empty())
      for (const auto& [name, tensor] : parallel::tensors_of(*module_).trained) all.push_back(tensor);
    for (const auto& stage : replicated_)
      for (const Tensor& parameter : stage->parameters()) all.push_back(parameter);
    return all;
  }

  double clip_grad_norm(double max_norm, double norm_type) {
    double norm = 0;
    pipeline::placed(
        ranks_, [] { return std::string("computes the norm of all gradients"); },
        [&] { norm = parallel::clip_gradients(parameters(), max_norm, norm_type, &ranks_); });
    return norm;
  }

  void save(const std::string& path, const std::map<std::string, std::string>& metadata) {
    weights::save_parts(path, *module_, all_, parts_.schedule.ranks, metadata, parts_.names);
    all_.barrier();  // when save() returns, the file is complete
  }
  void load(const std::string& path) { weights::load_weights(path, *module_, parts_.elsewhere()); }

  torch::nn::Sequential module() const { return module_; }
  const Parts& parts() const { return parts_; }
  const pipeline::Executor& executor() const { return executor_; }
  const PipelineStatistics& statistics() const { return statistics_; }
  int pipelines() const { return pipelines_; }
  int number() const { return number_; }

 private:
  // What the rank of the first stage tells its pipeline before a step.
  struct BatchNote {
    std::int64_t rows = 0;      // of all pipelines together
    std::int64_t own_rows = 0;  // of this pipeline
    std::int64_t shape = 0;     // a hash of the inputs' shape and type; 0 if this rank does not know them
  };
  static constexpr std::size_t kNoteWords = sizeof(BatchNote) / sizeof(std::int64_t);

  // What the rank of the last stage tells all ranks.
  struct LossNote {
    double loss = 0;      // mean over the pipeline's own rows
    double own_rows = 0;  // exact: there are fewer than 2^53
    double rows = 0;      // of all pipelines together
  };
  static constexpr std::size_t kLossWords = sizeof(LossNote) / sizeof(double);

  std::vector<std::shared_ptr<pipeline::Stage>> make_stages() {
    std::vector<std::shared_ptr<pipeline::Stage>> stages;
    for (std::size_t i = 0; i < parts_.mine.size(); ++i) {
      const pipeline::StageOptions options{.first = parts_.mine[i] == 0, .recompute = options_.recompute};
      const torch::nn::Sequential& modules = parts_.stages[i];
      if (options_.emulate) {
        const double share = 1.0 / static_cast<double>(parts_.mine.size());
        const pipeline::Times& whole = *options_.emulate;
        stages.push_back(std::make_shared<pipeline::EmulatedStage>(
            modules, pipeline::Times{whole.forward * share, whole.input * share, whole.weight * share}, options.first));
      } else if (pipelines_ > 1) {
        replicated_.push_back(std::make_shared<pipeline::ReplicatedStage>(
            modules, options, parts_.schedule.microbatches, replicas_, options_.ddp));
        stages.push_back(replicated_.back());
      } else {
        stages.push_back(std::make_shared<pipeline::SequentialStage>(*modules, options));
      }
    }
    return stages;
  }

  Rank world_of(int pipeline, Rank position) const { return pipeline * parts_.schedule.ranks + position; }
  std::int64_t own_share(std::int64_t rows) const {
    return static_cast<std::int64_t>(chunk_size(static_cast<std::size_t>(rows), pipelines_, number_));
  }

  // `known` is -1 if this rank does not know it yet; then it does afterwards.
  void check_rows(std::int64_t rows, std::int64_t& known, const char* what) const {
    if (known >= 0 && rows != known)
      throw UsageError(fmt::format("rank {}, step {}: the inputs have {} rows, and the {} have {}", all_.world_rank(),
                                   step_, known, what, rows),
                       "inputs and targets with one row per sample");
    known = rows;
  }

  // The rank of the first stage tells the ranks of its pipeline about the batch. A rank that was given the inputs knows
  // as much itself, and only compares, when its first activation has come; the others wait here.
  void agree_on_batch(BatchNote& note, const Tensor& inputs) {
    const Rank first = parts_.schedule.rank_of_stage.front();
    if (inputs.defined()) note.shape = hash_of(inputs);
    if (ranks_.rank() == first) {
      if (!inputs.defined())
        throw UsageError(fmt::format("rank {} has the first stage, and got no inputs", all_.world_rank()),
                         "the batch on every rank for which has_first_stage() is true");
      notes_.clear();
      note_ = note;
      for (Rank rank = 0; rank < ranks_.size(); ++rank)
        if (rank != first)
          notes_.push_back(
              all_.send_async(world_of(number_, rank), ConstBuffer(&note_, kNoteWords, DType::int64), kBatchTag));
      return;
    }
    note_ = note;
    told_work_ = all_.recv_async(world_of(number_, first), Buffer(&told_, kNoteWords, DType::int64), kBatchTag);
    if (inputs.defined()) return;
    pipeline::placed(
        ranks_, [&] { return fmt::format("waits for the size of the batch of step {}", step_); },
        [&] { compare_notes(); });
    note = told_;
  }

  void compare_notes() {
    const Rank first = parts_.schedule.rank_of_stage.front();
    if (ranks_.rank() == first) return;
    told_work_.wait();
    for (const auto& [mine, theirs] : {std::pair(note_.rows, told_.rows), std::pair(note_.own_rows, told_.own_rows)})
      if (mine >= 0 && mine != theirs)
        throw Mismatch(fmt::format("ranks disagree: rank {} was given a batch of {} rows in step {}, rank {} one of {}",
                                   all_.world_rank(), mine, step_, all_.world_rank(world_of(number_, first)), theirs),
                       "the same batch on all ranks, or an undefined tensor on ranks that do not need it");
    if (note_.shape != 0 && note_.shape != told_.shape)
      throw Mismatch(fmt::format("ranks disagree: the inputs of step {} have another shape or type on rank {} than on "
                                 "rank {}",
                                 step_, all_.world_rank(), all_.world_rank(world_of(number_, first))),
                     "the same batch on all ranks, or an undefined tensor on ranks that do not need it");
  }

  static std::int64_t hash_of(const Tensor& inputs) {
    std::size_t hash = static_cast<std::size_t>(inputs.scalar_type()) + 1;
    for (const std::int64_t size : inputs.sizes())
      hash = (hash ^ static_cast<std::size_t>(size)) * 1'099'511'628'211U + 14'695'981'039'346'656'037U;
    return static_cast<std::int64_t>(hash | 1U);
  }

  double run(const Tensor& inputs, const Tensor& targets, BatchNote note, const LossFunction& loss) {
    const auto began = Clock::now();
    agree_on_batch(note, inputs);
    if (executor_.has_last_stage() && !targets.defined())
      throw UsageError(fmt::format("rank {} has the last stage, and got no targets", all_.world_rank()),
                       "the targets on every rank for which has_last_stage() is true");
    if (std::exchange(shape_, note.shape) != note.shape) executor_.new_shapes();
    rows_ = note.rows;
    own_rows_ = note.own_rows;
    // Scales the pipeline's mean loss so that the mean over pipelines is the mean over all rows.
    weight_ = rows_ > 0 ? static_cast<double>(own_rows_) * pipelines_ / static_cast<double>(rows_) : 0;
    loss_ = &loss;

    statistics_ = {};
    pipeline::StepResult result =
        executor_.step(split(inputs, executor_.has_first_stage()), split(targets, executor_.has_last_stage()));
    const auto drained = Clock::now();
    {
      const trace::Span span(all_.recorder(), "averaging", "pipeline");
      after_the_list("averages gradients with the other pipelines", [&] {
        for (const auto& stage : replicated_) stage->finish();
      });
    }
    statistics_.exposed_reductions = seconds_since(drained);
    for (const auto& stage : replicated_) statistics_.reductions += stage->statistics().communication;
    const double mean = collect_losses();
    statistics_.peak_activations = result.peak_activations;
    for (const auto& [action, start, end] : result.timeline.moments) {
      const double seconds = std::chrono::duration<double>(end - start).count();
      (is_message(action.kind)            ? statistics_.messages
       : action.kind == pipeline::Kind::F ? statistics_.forward
                                          : statistics_.backward) += seconds;
    }
    statistics_.timeline = std::move(result.timeline);
    statistics_.seconds = seconds_since(began);
    ++step_;
    return mean;
  }

  std::vector<Tensor> split(const Tensor& tensor, bool needed) const {
    return needed ? tensor.tensor_split(parts_.schedule.microbatches) : std::vector<Tensor>();
  }

  // Runs `body`. Its errors say that all actions are done, and what the rank does after them.
  template <typename Body>
  void after_the_list(const char* what, const Body& body) {
    pipeline::placed(
        ranks_, [&] { return fmt::format("{} in step {} (after its last action)", what, step_); }, body);
  }

  // Runs on the rank of the last stage as soon as the loss is known. All ranks are told while the pipeline drains, so
  // that nobody has to wait for it at the end.
  void tell_loss(double scaled) {
    mine_ = {.loss = weight_ > 0 ? scaled / weight_ : std::numeric_limits<double>::quiet_NaN(),
             .own_rows = static_cast<double>(own_rows_),
             .rows = static_cast<double>(rows_)};
    losses_sent_.clear();
    for (Rank rank = 0; rank < all_.size(); ++rank)
      if (rank != all_.rank())
        losses_sent_.push_back(all_.send_async(rank, ConstBuffer(&mine_, kLossWords, DType::float64), kLossTag));
  }

  // The mean over all rows, summed in the order of the pipelines, so that all ranks get the same bits.
  double collect_losses() {
    double sum = 0;
    after_the_list("waits for the loss", [&] {
      for (int pipeline = 0; pipeline < pipelines_; ++pipeline) {
        const Rank from = world_of(pipeline, parts_.schedule.rank_of_stage.back());
        LossNote note = mine_;
        if (from != all_.rank()) all_.recv(from, Buffer(&note, kLossWords, DType::float64), kLossTag);
        if (note.rows != static_cast<double>(rows_))
          throw Mismatch(fmt::format("ranks disagree: the batch of step {} has {} rows on rank {}, and {} on rank {}",
                                     step_, rows_, all_.world_rank(), note.rows, all_.world_rank(from)),
                         "the same batch on all ranks");
        statistics_.losses.push_back(note.loss);
        if (note.own_rows > 0) sum += note.loss * (note.own_rows / note.rows);
      }
      for (Work& work : losses_sent_) work.wait();
      for (Work& work : notes_) work.wait();
    });
    return sum;
  }

  const PipelineOptions options_;
  const Parts parts_;
  Communicator all_;  // all ranks
  const int number_, pipelines_;
  Communicator ranks_;     // the ranks of this pipeline
  Communicator replicas_;  // the ranks that have the same stages
  torch::nn::Sequential module_;
  std::vector<std::shared_ptr<pipeline::ReplicatedStage>> replicated_;
  pipeline::Executor executor_;

  // The step that is under way.
  const LossFunction* loss_ = nullptr;
  std::int64_t rows_ = 0, own_rows_ = 0;
  double weight_ = 1;
  std::int64_t shape_ = 0;  // hash of the inputs of the step before
  BatchNote note_, told_;   // what this rank knows of the batch, and what the rank of the first stage told it
  Work told_work_;
  LossNote mine_;
  std::vector<Work> notes_, losses_sent_;  // `note_` and `mine_` must live until these are done
  std::int64_t step_ = 0;
  PipelineStatistics statistics_;
};

Pipeline::Pipeline(const std::shared_ptr<torch::nn::SequentialImpl>& model, Communicator& comm,
                   const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(cut_and_share(*model, comm, options), comm, options)) {}
Pipeline::Pipeline(const std::vector<model::Layer>& layers, Communicator& comm, const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(make_and_keep(layers, comm, options), comm, options)) {}
Pipeline::Pipeline(const Parts& parts, Communicator& comm, const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(parts, comm, options)) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

double Pipeline::step(const Tensor& inputs, const Tensor& targets, const LossFunction& loss) {
  return impl_->step(inputs, targets, loss);
}
double Pipeline::step_share(const Tensor& inputs, const Tensor& targets, std::int64_t rows, const LossFunction& loss) {
  return impl_->step_share(inputs, targets, rows, loss);
}
Tensor Pipeline::infer(const Tensor& inputs) { return impl_->infer(inputs, true); }
Tensor Pipeline::infer_at_last(const Tensor& inputs) { return impl_->infer(inputs, false); }
std::vector<Tensor> Pipeline::parameters() const { return impl_->parameters(); }
torch::nn::Sequential Pipeline::module() const { return impl_->module(); }
void Pipeline::train(bool on) { impl_->module()->train(on); }
double Pipeline::clip_grad_norm(double max_norm, double norm_type) {
  return impl_->clip_grad_norm(max_norm, norm_type);
}
void Pipeline::save(const std::string& path, const std::map<std::string, std::string>& metadata) {
  impl_->save(path, metadata);
}
void Pipeline::load(const std::string& path) { impl_->load(path); }
int Pipeline::pipelines() const { return impl_->pipelines(); }
int Pipeline::number() const { return impl_->number(); }
bool Pipeline::has_first_stage() const { return impl_->executor().has_first_stage(); }
bool Pipeline::has_last_stage() const { return impl_->executor().has_last_stage(); }
const pipeline::Schedule& Pipeline::schedule() const { return impl_->executor().schedule(); }
const PipelineStatistics& Pipeline::statistics() const { return impl_->statistics(); }
std::string Pipeline::layout() const { return impl_->parts().table(); }

}  // namespace lockstep
