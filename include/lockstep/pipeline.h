// Pipeline parallelism for libtorch: every rank has some layers of the model, and a batch passes through the ranks in
// microbatches.
//
//   lockstep::Pipeline pipeline(model, comm, {.schedule = "1f1b", .microbatches = 8});
//   torch::optim::Adam optimizer(pipeline.parameters());
//   for (const auto& [inputs, targets] : batches) {
//     optimizer.zero_grad();
//     const double loss = pipeline.step(inputs, targets, cross_entropy);
//     optimizer.step();
//   }
//
// Contract:
//  1. Construction, step(), step_share() and save() are collective over all ranks, and infer(), infer_at_last() and
//     clip_grad_norm() over the ranks of one pipeline: these ranks call them in the same order. Every rank calls load()
//     by itself.
//  2. Weights and buffers begin as those of rank 0. A layer's modules stay on the ranks that have its stage; a model
//     that was given as a Sequential can be released by the caller after construction.
//  3. After step(), the gradients of the mean loss over the whole batch have been added to this rank's parameters. They
//     are those of a single process up to rounding. Layers that look at a whole batch, such as BatchNorm, see one
//     microbatch at a time. Ranks that have the same stage in different pipelines end with the same bits in their
//     gradients.
//  4. Only one thread at a time may use this object. `comm` and its world must outlive it. It has communicators of its
//     own, made from `comm`.
//  5. After an error, the object can only be destroyed.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/data_parallel.h"
#include "lockstep/model.h"
#include "lockstep/schedule.h"

namespace lockstep {

namespace pipeline {

struct Parts;

// When a rank did one action.
struct Moment {
  Action action;
  Clock::time_point began;
  Clock::time_point ended;
};

struct Timeline {
  std::vector<Moment> moments;  // one per action of the lowered list, in its order
  Clock::time_point began;
  Clock::time_point ended;  // when all sends were done
};

}  // namespace pipeline

// Returns the mean loss over the rows of `output`, a scalar.
using LossFunction = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& targets)>;

struct PipelineOptions {
  // The name of a schedule (`lockstep schedule` lists them), or the path of a CSV file, which ends in .csv.
  std::string schedule = "1f1b";
  // The number of parts into which each pipeline divides its rows of the batch. Ignored if the schedule is a CSV file,
  // which contains this number.
  int microbatches = 8;
  // The number of ranks in one pipeline. 0 means all ranks, or the number of lines of a CSV file. With fewer, several
  // pipelines run beside each other and share the batch: ranks [r * ranks, (r + 1) * ranks) are pipeline r.
  int ranks = 0;
  // The number of stages on each rank, for schedules that allow several.
  std::optional<int> virtual_stages = {};

  // What is made equal among stages: the number of layers, the number of parameters, or the time.
  pipeline::Balance balance = pipeline::Balance::count;
  // For Balance::time: inputs of one microbatch, with which rank 0 measures each module. Other ranks may leave it out.
  torch::Tensor sample = {};
  // For Balance::time, instead of `sample`: the seconds of each module, the same on all ranks.
  std::vector<double> module_seconds = {};

  // Keep only the input of each stage, and run forward again before backward. It saves memory and costs time.
  bool recompute = false;
  // How pipelines that run beside each other average their gradients. `sharded` is not possible here.
  DdpOptions ddp = {};
  // To study schedules: for each F, I and W of a microbatch, a rank sleeps for this number of seconds instead of
  // computing. The stages of one rank share the time. The loss is then not a number.
  std::optional<pipeline::Times> emulate = {};
  // The pipeline's name in error messages.
  std::string name = "pipeline";
};

// The last step on this rank. Times are in seconds.
struct PipelineStatistics {
  double seconds = 0;   // the whole step
  double forward = 0;   // computing
  double backward = 0;  // computing
  double messages = 0;  // sending activations and gradients, and waiting for them
  // Reductions among pipelines: their total, and the part of it that this rank waited for after its last action.
  double reductions = 0;
  double exposed_reductions = 0;
  int peak_activations = 0;     // the most that this rank kept at once, counted per stage and microbatch
  std::vector<double> losses;   // [pipeline] mean loss over its rows; not a number if it had none
  pipeline::Timeline timeline;  // when this rank did each action
};

class Pipeline {
 public:
  // The model as a whole, on every rank: a torch::nn::Sequential, or a class of your own that is derived from
  // SequentialImpl. Throws UsageError if two stages would share a parameter, and Mismatch if ranks have different
  // models.
  Pipeline(const std::shared_ptr<torch::nn::SequentialImpl>& model, Communicator& comm,
           const PipelineOptions& options = {});
  template <typename Holder>
  requires std::derived_from<typename Holder::ContainedType, torch::nn::SequentialImpl> Pipeline(
      const Holder& model, Communicator& comm, const PipelineOptions& options = {})
      : Pipeline(std::static_pointer_cast<torch::nn::SequentialImpl>(model.ptr()), comm, options) {}

  // The model as a list of functions that make its layers, for models that do not fit in one rank. Every rank makes one
  // layer at a time and keeps only its own, so that the weights are those that rank 0's generator would draw for the
  // whole model. The layers have the names "0", "1", and so on.
  Pipeline(const std::vector<model::Layer>& layers, Communicator& comm, const PipelineOptions& options = {});

  // For Lockstep itself: this rank's part of a model that was cut before, the same cut on all ranks. Weights stay as
  // they are.
  Pipeline(const pipeline::Parts& parts, Communicator& comm, const PipelineOptions& options = {});

  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  // Runs forward and backward of one batch, and returns the mean loss over its rows on every rank. All ranks pass the
  // same batch, with one row per sample. A rank without the first stage may pass undefined inputs, and a rank without
  // the last stage undefined targets. Batches may differ in size from step to step. Throws Mismatch if ranks pass
  // batches with different numbers of rows.
  double step(const torch::Tensor& inputs, const torch::Tensor& targets, const LossFunction& loss);
  // The same for programs that load only the rows of this rank's own pipeline. `rows` is the number of rows that all
  // pipelines together have in this step.
  double step_share(const torch::Tensor& inputs, const torch::Tensor& targets, std::int64_t rows,
                    const LossFunction& loss);

  // Runs a batch through this rank's own pipeline, without gradients and in one piece. Returns the output on all ranks
  // of the pipeline. Call eval() before it if the model has layers such as Dropout and BatchNorm.
  torch::Tensor infer(const torch::Tensor& inputs);
  // The same, but only the rank of the last stage gets the output. The others get an undefined tensor.
  torch::Tensor infer_at_last(const torch::Tensor& inputs);

  // The tensors to give to this rank's optimizer.
  std::vector<torch::Tensor> parameters() const;
  // This rank's modules, under the names that they have in the whole model.
  torch::nn::Sequential module() const;
  void train(bool on = true);
  void eval() { train(false); }

  // Scales the gradients so that their norm over all parameters of the model is at most `max_norm`. Returns the norm
  // before scaling, the same on all ranks.
  double clip_grad_norm(double max_norm, double norm_type = 2);

  // Writes the weights of the whole model to one safetensors file. Rank 0 writes, one tensor at a time.
  void save(const std::string& path, const std::map<std::string, std::string>& metadata = {});
  // Reads this rank's weights from a file of the whole model. Throws UsageError if the file does not fit the model.
  void load(const std::string& path);

  int pipelines() const;                       // number of pipelines that run beside each other
  int number() const;                          // number of this rank's pipeline
  bool has_first_stage() const;                // whether this rank needs the inputs
  bool has_last_stage() const;                 // whether this rank needs the targets
  const pipeline::Schedule& schedule() const;  // with its sends and receives
  const PipelineStatistics& statistics() const;
  // A table of the stages: their ranks, modules and parameters.
  std::string layout() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
