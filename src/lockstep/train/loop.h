// The training loop.
//
//   Training training(config, rank, ranks);        // on its own: model, data, weights
//   Result result = training.run(comm, progress);  // together
//
// Same seed, same draws as PyTorch in the same order: the weights, then the inputs, then the targets of the whole
// batch. Every rank draws all of it and takes its rows; in a pipeline it draws all weights, and keeps its stages'.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/model/make.h"
#include "lockstep/train/config.h"
#include "lockstep/train/feed.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/result.h"

namespace lockstep::train {

class Training {
 public:
  // Seeds torch's default generator, which ranks that are threads share: they take turns. Throws UsageError on what
  // only the model and the files can tell. `config` must be checked().
  Training(const TrainingConfig& config, Rank rank, int ranks);

  // Collective, once. The result is complete on rank 0. `progress` is rank 0's.
  Result run(Communicator& comm, Progress& progress);

  // Of the whole model.
  model::Size size() const { return size_; }
  std::int64_t steps() const { return feed_->steps(); }

 private:
  TrainingConfig config_;
  torch::nn::Sequential model_{nullptr};  // in a pipeline, this rank's stages
  std::vector<torch::nn::Sequential> stages_;
  model::Size size_{};
  std::unique_ptr<Feed> feed_;
};

// A UsageError when the weights, gradients and optimizer states of `local_ranks` ranks do not fit into the memory that
// is free on this host now.
void check_host_memory(const TrainingConfig& config, int local_ranks);

// How many threads torch may use, and what it does with denormals. Before anything else, on the thread that trains:
// the threads that torch starts later take over its mode.
void prepare_process(const TrainingConfig& config, int local_ranks);

}  // namespace lockstep::train
