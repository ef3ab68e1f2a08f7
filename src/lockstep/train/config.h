// What a training run was asked for. Plain values, and no libtorch: `lockstep train` checks them before it starts a
// rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/model/config.h"
#include "lockstep/train/pipeline_config.h"

namespace lockstep::train {

struct TrainingConfig {
  static constexpr double kUnset = -1;

  std::string strategy = "ddp";
  int ranks = 0;  // 0: 2, or 1 for a strategy of one process
  model::ModelConfig model = {};

  std::string data = "synthetic";
  std::string data_dir = {};        // of mnist and fashion-mnist; empty: where they usually are
  std::string tail = "pad";         // when ranks do not divide an epoch's samples
  std::int64_t batch = 0;           // of all ranks together; 0: 32, or
  std::int64_t batch_per_rank = 0;  // or of each pipeline, where a pipeline has several ranks
  std::int64_t steps = 0;           // 0: 50, or as many as the epochs have
  std::int64_t epochs = 0;
  std::int64_t warmup = -1;  // steps at the start that are not timed; -1: 5, or half of them if there are fewer
  std::int64_t accumulate = 1;

  std::string optimizer = "adam";
  double lr = kUnset;  // kUnset: default_lr()
  std::uint64_t seed = 42;

  std::optional<double> bucket_mb = {};  // of ddp; none: its own
  bool flat = false;
  PipelineConfig pipeline = {};
  std::string transport = "auto";
  std::string algorithm = "auto";
  bool flush_denormals = false;

  std::string load = {}, save = {};  // safetensors files
  std::string trace = {};
  bool report_memory = false;

  // Of a run of so many steps: those that are not timed. At least one is.
  std::int64_t untimed(std::int64_t steps_made) const;
  bool has_epochs() const;  // the data ends, and begins again
  // Copies of the model: each has its share of the batch. Ranks [r * stages, (r + 1) * stages) are pipeline r.
  int replicas() const { return strategy == "pipeline" ? ranks / pipeline.stages : ranks; }
  std::string describe_model() const;
};

// 0.001; for Adam and RMSprop on an MLP whose layers are wider than 128, 0.001 * (128 / width)^1.5. With 0.001 a
// network of width 1024 amplifies rounding errors until the losses of two strategies have nothing in common; with 0.001
// * 128 / width its loss still jumped tenfold within 50 steps.
double default_lr(const TrainingConfig& config);

std::span<const std::string> strategies();
std::span<const std::string> data_sets();
std::span<const std::string> optimizers();

// The same with every value filled in that was left open. Throws UsageError if the values are inconsistent. What only
// libtorch or the files know (sizes of a model, missing data, other weights) is checked later.
TrainingConfig checked(TrainingConfig config);

}  // namespace lockstep::train
