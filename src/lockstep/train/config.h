// The settings of a training run. They are plain values and need no libtorch, because `lockstep train` checks them
// before it starts a rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/collectives/types.h"
#include "lockstep/model/config.h"
#include "lockstep/train/pipeline_config.h"
#include "lockstep/transport/options.h"

namespace lockstep::train {

struct TrainingConfig {
  static constexpr double kUnset = -1;

  std::string strategy = "ddp";
  int ranks = 0;  // 0: the default, which is 2, or 1 for a strategy of one process
  model::ModelConfig model = {};

  std::string data = "synthetic";
  std::string data_dir = {};        // folder of mnist and fashion-mnist; empty: where they usually are
  std::string tail = "pad";         // if ranks do not divide an epoch's samples: drop, pad or uneven (data/sampler.h)
  std::int64_t batch = 0;           // samples per step on all ranks; 0: 32, or from batch_per_rank
  std::int64_t batch_per_rank = 0;  // samples per step and rank (in a pipeline: per pipeline), instead of batch
  std::int64_t steps = 0;           // 0: 50, or as many as the epochs have
  std::int64_t epochs = 0;
  std::int64_t warmup = -1;  // steps at the start that are not timed; -1: 5, but at most half of all steps
  std::int64_t accumulate = 1;

  std::string optimizer = "adam";
  double lr = kUnset;  // kUnset: default_lr()
  std::uint64_t seed = 42;

  std::optional<double> bucket_mb = {};  // size of ddp's buckets in MiB; none: ddp's default
  bool flat = false;
  PipelineConfig pipeline = {};
  TransportKind transport = TransportKind::automatic;  // automatic: what LOCKSTEP_TRANSPORT says
  Algorithm algorithm = Algorithm::automatic;          // automatic: what LOCKSTEP_ALGORITHM says
  bool flush_denormals = false;

  std::string load = {}, save = {};  // paths of safetensors files
  std::string trace = {};            // file for what every rank did when; empty: what LOCKSTEP_TRACE says
  bool report_memory = false;

  // The number of steps that are not timed in a run of `steps_made` steps. At least one step is timed.
  std::int64_t untimed(std::int64_t steps_made) const;
  bool has_epochs() const;  // the data is finite, and is used again in every epoch
  // The number of copies of the model, each of which has its share of the batch. Ranks [r * stages, (r + 1) * stages)
  // are pipeline r.
  int replicas() const { return strategy == "pipeline" ? ranks / pipeline.stages : ranks; }
  std::string describe_model() const;
};

// The default learning rate: 0.001. For Adam, AdamW and RMSprop on an MLP whose layers are wider than 128 it is 0.001 *
// (128 / width)^1.5. With 0.001, a network of width 1024 amplifies rounding errors until the losses of two strategies
// have nothing in common; with 0.001 * 128 / width, its loss still jumped tenfold within 50 steps.
double default_lr(const TrainingConfig& config);

std::span<const std::string> strategies();
std::span<const std::string> data_sets();
std::span<const std::string> optimizers();

// Returns the settings with a value in place of everything that was left open. Throws UsageError if the values are
// inconsistent. What only libtorch or the files can tell (sizes of a model, missing data, other weights) is checked
// later.
TrainingConfig checked(TrainingConfig config);

}  // namespace lockstep::train
