// What was asked for of a pipeline: the schedule, the cut, and whether its arithmetic is real. No libtorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/pipeline/schedule.h"
#include "lockstep/parallel/pipeline/simulate.h"

namespace lockstep::train {

struct PipelineConfig {
  std::string schedule = {};  // a name, or a CSV file; empty: 1f1b
  int stages = 0;             // ranks of one pipeline; 0: all
  int microbatches = 0;       // 0: 8, or as many as the samples of a pipeline when these are fewer
  std::optional<int> virtual_stages = {};
  std::string balance = {};  // what makes stages equal: count, parameters, time; empty: count
  bool recompute = false;
  // Seconds that a rank takes for F, I and W of one microbatch, in all of its stages together. The rank then sleeps
  // for that time instead of computing.
  std::optional<pipeline::Times> emulate = {};
  // With balance time: seconds of each module, as rank 0 measured them.
  std::vector<double> module_seconds = {};
};

struct TrainingConfig;

// Both fill in what was left open and throw UsageError on what can't be: first ranks and stages, which the batch
// depends on, and then, when the batch is known, the rest.
void check_stages(TrainingConfig& config);
void check_pipeline(TrainingConfig& config);

// The seconds of each stage when compute is emulated: the stages of a rank share its time equally.
std::vector<pipeline::Times> emulated_times(const pipeline::Times& of_a_rank, const pipeline::Schedule& schedule);

// The schedule that check_pipeline has accepted.
pipeline::Schedule schedule_of(const TrainingConfig& config);

}  // namespace lockstep::train
