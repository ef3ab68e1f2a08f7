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
#include <span>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/batch.h"
#include "lockstep/train/config.h"
#include "lockstep/train/result.h"

namespace lockstep::train {

struct StepResult {
  double loss = 0;     // this rank's part of the mean over all samples
  double seconds = 0;  // from zero_grad to the end of the optimizer
  Phases phases;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  // Collective. `microbatches` are this rank's rows of one batch, for one step of the optimizer.
  virtual StepResult step(std::span<const data::Batch> microbatches) = 0;
  // Collective: after it, model() has the weights that all ranks agree on.
  virtual void sync() {}
  virtual torch::nn::SequentialImpl& model() = 0;
};

// What a strategy is made from. All of it must outlive the strategy.
struct Setup {
  const TrainingConfig& config;
  torch::nn::Sequential model;  // the same weights on all ranks
  Communicator& comm;
  std::function<void()> before_optimizer;  // called in each step when gradients are there; may be empty
};

// Collective. Throws UsageError when there is no strategy of that name.
std::unique_ptr<Strategy> make_strategy(const Setup& setup);

}  // namespace lockstep::train
