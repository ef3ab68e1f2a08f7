#include "lockstep/pipeline.h"

#include <fmt/format.h>

#include <exception>
#include <limits>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/parallel/data/clip.h"
#include "lockstep/parallel/data/parameters.h"
#include "lockstep/parallel/pipeline/run/distribute.h"
#include "lockstep/parallel/pipeline/run/emulated.h"
#include "lockstep/parallel/pipeline/run/executor.h"
#include "lockstep/parallel/pipeline/run/replicated.h"
#include "lockstep/parallel/pipeline/run/step_notes.h"
#include "lockstep/parallel/pipeline/run/with_position.h"
#include "lockstep/trace.h"
#include "lockstep/weights.h"
#include "lockstep/weights/save_parts.h"

namespace lockstep {
namespace {

using pipeline::BatchNote;
using pipeline::LossNote;
using pipeline::Parts;
using torch::Tensor;

constexpr Tag kOutputTag = 2;  // the last stage passes on the output of an inference; StepNotes has the tags before

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

// Shape and type as one number, which is never 0.
std::int64_t hash_of(const Tensor& inputs) {
  std::size_t hash = static_cast<std::size_t>(inputs.scalar_type()) + 1;
  for (const std::int64_t size : inputs.sizes())
    hash = (hash ^ static_cast<std::size_t>(size)) * 1'099'511'628'211U + 14'695'981'039'346'656'037U;
  return static_cast<std::int64_t>(hash | 1U);
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
        notes_(all_, parts_.schedule),
        module_(parts_.joined()),
        executor_(ranks_, parts_.schedule, make_stages(),
                  [this](const Tensor& output, const Tensor& targets) { return (*loss_)(output, targets) * weight_; }) {
    executor_.on_loss([this](double scaled) { tell_loss(scaled); });
    executor_.before_first_forward([this] { notes_.compare(); });
  }

  double step(const Tensor& inputs, const Tensor& targets, const LossFunction& loss) {
    BatchNote note;
    if (inputs.defined()) note.rows = rows_of(inputs, "inputs");
    if (targets.defined()) check_rows(rows_of(targets, "targets"), note.rows, "targets");
    if (note.rows >= 0) note.own_rows = own_share(note.rows);
    return run(chunk_of(inputs, pipelines_, number_), chunk_of(targets, pipelines_, number_), note, loss);
  }

  double step_share(const Tensor& inputs, const Tensor& targets, std::int64_t rows, const LossFunction& loss) {
    BatchNote note{.rows = rows};
    if (inputs.defined()) note.own_rows = rows_of(inputs, "inputs");
    if (targets.defined()) check_rows(rows_of(targets, "targets"), note.own_rows, "targets");
    return run(inputs, targets, note, loss);
  }

  Tensor infer(const Tensor& inputs, bool everywhere) {
    const pipeline::Activation output = executor_.infer(inputs);
    if (!everywhere) return output.tensor();
    const Rank last = parts_.schedule.rank_of_stage.back();
    pipeline::Activation result = output;
    pipeline::with_position(
        ranks_, [] { return std::string("passes on the output of an inference"); },
        [&] {
          if (ranks_.rank() != last) result = pipeline::receive_whole(all_, world_of(number_, last), kOutputTag);
          for (Rank rank = 0; ranks_.rank() == last && rank < ranks_.size(); ++rank)
            if (rank != last) pipeline::send_whole(all_, world_of(number_, rank), output, kOutputTag);
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
    pipeline::with_position(
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
  bool has_first_stage() const { return executor_.has_first_stage(); }
  bool has_last_stage() const { return executor_.has_last_stage(); }
  const PipelineStatistics& statistics() const { return statistics_; }
  int pipelines() const { return pipelines_; }
  int number() const { return number_; }

 private:
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

  double run(const Tensor& inputs, const Tensor& targets, BatchNote note, const LossFunction& loss) {
    const auto began = Clock::now();
    // An error that ends this step must not leave messages that the destructor would wait for.
    struct Guard {
      pipeline::StepNotes& notes;
      const int exceptions = std::uncaught_exceptions();
      ~Guard() {
        if (std::uncaught_exceptions() > exceptions) notes.give_up();
      }
    } guard{notes_};
    const auto given = [&](bool needed, const Tensor& tensor, const char* stage, const char* what, const char* hint) {
      if (needed && !tensor.defined())
        throw UsageError(fmt::format("rank {} has the {} stage, and got no {}", all_.world_rank(), stage, what), hint);
    };
    given(has_first_stage(), inputs, "first", "inputs", "the batch on every rank for which has_first_stage() is true");
    given(has_last_stage(), targets, "last", "targets", "the targets on every rank for which has_last_stage() is true");
    if (inputs.defined()) note.shape = hash_of(inputs);
    note = notes_.begin(step_, note);
    if (std::exchange(shape_, note.shape) != note.shape) executor_.new_shapes();
    rows_ = note.rows;
    own_rows_ = note.own_rows;
    // Scales the pipeline's mean loss so that the mean over pipelines is the mean over all rows.
    weight_ = rows_ > 0 ? static_cast<double>(own_rows_) * pipelines_ / static_cast<double>(rows_) : 0;
    loss_ = &loss;

    statistics_ = {};
    pipeline::ExecutedStep result = executor_.step(split(inputs, has_first_stage()), split(targets, has_last_stage()));
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
    pipeline::with_position(
        ranks_, [&] { return fmt::format("{} in step {} (after its last action)", what, step_); }, body);
  }

  // Runs on the rank of the last stage as soon as the loss is known. All ranks are told while the pipeline drains, so
  // that nobody has to wait for it at the end.
  void tell_loss(double scaled) {
    notes_.tell_loss({.mean = weight_ > 0 ? scaled / weight_ : std::numeric_limits<double>::quiet_NaN(),
                      .own_rows = static_cast<double>(own_rows_),
                      .rows = static_cast<double>(rows_)});
  }

  // The mean over all rows, summed in the order of the pipelines, so that all ranks get the same bits.
  double collect_losses() {
    double sum = 0;
    after_the_list("waits for the loss", [&] {
      for (const LossNote& note : notes_.collect_losses()) {
        statistics_.losses.push_back(note.mean);
        if (note.own_rows > 0) sum += note.mean * (note.own_rows / note.rows);
      }
    });
    return sum;
  }

  const PipelineOptions options_;
  const Parts parts_;
  Communicator all_;  // all ranks
  const int number_, pipelines_;
  Communicator ranks_;     // the ranks of this pipeline
  Communicator replicas_;  // the ranks that have the same stages
  pipeline::StepNotes notes_;
  torch::nn::Sequential module_;
  std::vector<std::shared_ptr<pipeline::ReplicatedStage>> replicated_;
  pipeline::Executor executor_;

  // The step that is under way.
  const LossFunction* loss_ = nullptr;
  std::int64_t rows_ = 0, own_rows_ = 0;
  double weight_ = 1;
  std::int64_t shape_ = 0;  // hash of the inputs of the step before
  std::int64_t step_ = 0;
  PipelineStatistics statistics_;
};

Pipeline::Pipeline(const std::shared_ptr<torch::nn::SequentialImpl>& model, Communicator& comm,
                   const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(pipeline::distribute(*model, comm, options), comm, options)) {}
Pipeline::Pipeline(const std::vector<model::Layer>& layers, Communicator& comm, const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(pipeline::distribute(layers, comm, options), comm, options)) {}
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
bool Pipeline::has_first_stage() const { return impl_->has_first_stage(); }
bool Pipeline::has_last_stage() const { return impl_->has_last_stage(); }
const pipeline::Schedule& Pipeline::schedule() const { return impl_->executor().schedule(); }
const PipelineStatistics& Pipeline::statistics() const { return impl_->statistics(); }
std::string Pipeline::layout() const { return impl_->parts().table(); }

}  // namespace lockstep
