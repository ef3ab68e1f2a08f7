// One rung of the ladder as the loop sees it: something that makes a training step.
//
// Losses. A rank's gradients are averaged over ranks, so its loss is scaled by rows here * ranks / rows of all: then
// the average is the single process's gradient, also when ranks have different numbers of rows. What a step reports is
// the part that this rank adds to the mean over all samples; the sum over ranks is that mean.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/batch.h"
#include "lockstep/train/config.h"
#include "lockstep/train/result.h"

namespace lockstep::train {

struct PipelineRecord;

struct StepResult {
  double loss = 0;  // this rank's part of the mean over all samples
  // For people, on rank 0: the mean over the samples that it knows of. None: that of its own part.
  std::optional<double> shown = {};
  double seconds = 0;  // from zero_grad to the end of the optimizer
  Phases phases = {};
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  // Collective. `microbatches` are this rank's rows of one batch, for one step of the optimizer.
  virtual StepResult step(std::span<const data::Batch> microbatches) = 0;
  // Collective: after it, model() has the weights that all ranks agree on.
  virtual void sync() {}
  // What this rank has of the model: all of it, or its stages, by the names that they have in the whole.
  virtual torch::nn::SequentialImpl& model() = 0;
  // Collective over the ranks of a replica. The output, on the rank that has it; elsewhere undefined.
  virtual torch::Tensor infer(const torch::Tensor& inputs) { return model().forward(inputs); }
  // Null unless this is a pipeline.
  virtual const PipelineRecord* record() const { return nullptr; }
};

// What a strategy is made from. All of it must outlive the strategy.
struct Setup {
  const TrainingConfig& config;
  torch::nn::Sequential model;                // the same weights on all ranks; in a pipeline, this rank's stages
  std::vector<torch::nn::Sequential> stages;  // of a pipeline: the same modules, a stage each
  Communicator& comm;
  std::function<void()> before_optimizer;  // called in each step when gradients are there; may be empty
};

// Collective. Throws UsageError when there is no strategy of that name.
std::unique_ptr<Strategy> make_strategy(const Setup& setup);

}  // namespace lockstep::train
