// The settings of a pipeline: the schedule, the cut, and whether its computation is real or emulated. They need no
// libtorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/pipeline/schedule.h"
#include "lockstep/parallel/pipeline/simulate.h"

namespace lockstep::train {

struct PipelineConfig {
  std::string schedule = {};  // name of a schedule, or a CSV file; empty: 1f1b
  int stages = 0;             // number of ranks in one pipeline; 0: all ranks
  int microbatches = 0;       // 0: 8, or the number of samples per pipeline if that is smaller
  std::optional<int> virtual_stages = {};
  std::string balance = {};  // what is made equal among stages: count, parameters or time; empty: count
  bool recompute = false;
  // Seconds that a rank takes for F, I and W of one microbatch, in all of its stages together. The rank then sleeps
  // for that time instead of computing.
  std::optional<pipeline::Times> emulate = {};
  // With balance `time`: seconds of each module, as measured by rank 0.
  std::vector<double> module_seconds = {};
};

struct TrainingConfig;

// Both fill in what was left open, and throw UsageError if the values are inconsistent. check_stages() comes first and
// determines the numbers of ranks and stages, which the batch depends on. check_pipeline() checks the rest when the
// batch is known.
void check_stages(TrainingConfig& config);
void check_pipeline(TrainingConfig& config);

// The seconds of each stage when computation is emulated: the stages of a rank share its time equally.
std::vector<pipeline::Times> emulated_times(const pipeline::Times& of_a_rank, const pipeline::Schedule& schedule);

// The schedule that check_pipeline() has accepted.
pipeline::Schedule schedule_of(const TrainingConfig& config);

}  // namespace lockstep::train
