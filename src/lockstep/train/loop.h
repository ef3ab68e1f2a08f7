// The training loop.
//
//   Training training(config, rank, ranks);        // each rank on its own: model, data, weights
//   Result result = training.run(comm, progress);  // all ranks together
//
// With the same seed, the same numbers are drawn as in PyTorch, in the same order: the weights, then the inputs, then
// the targets of the whole batch. Every rank draws all of them and takes its rows. In a pipeline, every rank draws all
// weights and keeps those of its stages.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <memory>
#include <optional>

#include "lockstep/comm/communicator.h"
#include "lockstep/model/make.h"
#include "lockstep/parallel/pipeline/parts.h"
#include "lockstep/train/config.h"
#include "lockstep/train/feed.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/result.h"

namespace lockstep::train {

class Training {
 public:
  // Seeds torch's default generator. Ranks that are threads share this generator, so they take turns. Throws UsageError
  // for problems that only the model and the files can show. `config` must be a result of checked().
  Training(const TrainingConfig& config, Rank rank, int ranks);

  // Collective; may be called once. Only rank 0's result is complete. Only rank 0's `progress` is shown.
  Result run(Communicator& comm, Progress& progress);

  // The size of the whole model.
  model::Size size() const { return size_; }
  std::int64_t steps() const { return feed_->steps(); }

 private:
  TrainingConfig config_;
  torch::nn::Sequential model_{nullptr};  // in a pipeline: this rank's stages
  std::optional<pipeline::Parts> parts_;  // only in a pipeline
  model::Size size_{};
  std::unique_ptr<Feed> feed_;
};

// How the ranks of this configuration communicate: what it says itself, and for the rest what the environment says.
//
//   rank_main(body, transport_options(config), comm_options(config));
transport::Options transport_options(const TrainingConfig& config);
comm::Options comm_options(const TrainingConfig& config);

// Throws UsageError if the weights, gradients and optimizer states of `local_ranks` ranks do not fit into the memory
// that is free on this host now.
void check_host_memory(const TrainingConfig& config, int local_ranks);

// Sets how many threads torch may use, and how it treats denormals. Must be called before anything else, on the thread
// that trains, because threads that torch starts later take over the mode of this thread.
void prepare_process(const TrainingConfig& config, int local_ranks);

}  // namespace lockstep::train
