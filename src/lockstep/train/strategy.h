// A training strategy as the loop sees it: an object that makes training steps.
//
// Losses. A rank's gradients are averaged over ranks. So its loss is scaled by (rows on this rank) * ranks / (rows on
// all ranks): then the average is the gradient that a single process would have, also when ranks have different numbers
// of rows. The loss that a step reports is this rank's part of the mean over all samples; the sum over ranks is that
// mean.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/data.h"
#include "lockstep/parallel/pipeline/run/parts.h"
#include "lockstep/train/result.h"
#include "lockstep/training.h"

namespace lockstep::pipeline {
struct Parts;
}

namespace lockstep::train {

struct PipelineRecord;

struct StepResult {
  double loss = 0;  // this rank's part of the mean over all samples
  // The loss to be shown, on rank 0: the mean over the samples that it knows of. Empty: computed from `loss`.
  std::optional<double> shown = {};
  double seconds = 0;  // from zero_grad to the end of the optimizer's step
  Phases phases = {};
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  // Collective. `microbatches` are this rank's rows of one batch, for one step of the optimizer.
  virtual StepResult step(std::span<const data::Batch> microbatches) = 0;
  // Collective. When it returns, model() has the weights that all ranks agree on.
  virtual void sync() {}
  // This rank's part of the model: all of it, or its stages, under the names that they have in the whole model.
  virtual torch::nn::SequentialImpl& model() = 0;
  // Collective over the ranks of a replica. Returns the output on the rank that has it, and an undefined tensor
  // elsewhere.
  virtual torch::Tensor infer(const torch::Tensor& inputs) { return model().forward(inputs); }
  // Called after each step that is measured, outside of its time.
  virtual void keep_backward() {}
  // When gradients travelled in a backward. With hooks, it is one of those that keep_backward() has kept; with ddp and
  // sharded, it is the last one. None for strategies that send nothing while backward runs.
  virtual std::optional<BackwardRecord> backward_record() const { return std::nullopt; }
  // Null unless this is a pipeline.
  virtual const PipelineRecord* record() const { return nullptr; }
};

// What a strategy is made from. Everything that this refers to must outlive the strategy.
struct Setup {
  const TrainingConfig& config;
  torch::nn::Sequential model;  // the same weights on all ranks; in a pipeline, this rank's stages
  Communicator& comm;
  const pipeline::Parts* parts = nullptr;  // in a pipeline: the same modules, and where they lie in the whole model
  std::function<void()> before_optimizer = {};  // called in each step when the gradients are ready; may be empty
};

// Collective.
std::unique_ptr<Strategy> make_strategy(const Setup& setup);

}  // namespace lockstep::train
