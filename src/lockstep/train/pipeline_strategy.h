// Training through one pipeline, or through several pipelines side by side.
//
// Ranks [r * stages, (r + 1) * stages) are pipeline r. Each pipeline has its share of the batch. The ranks that have
// the same stage in all pipelines average their gradients, once per step.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "lockstep/parallel/pipeline/run/moments.h"
#include "lockstep/parallel/pipeline/run/partition.h"
#include "lockstep/parallel/pipeline/run/parts.h"
#include "lockstep/pipeline.h"
#include "lockstep/schedule.h"
#include "lockstep/train/strategy.h"

namespace lockstep::train {

// What one rank remembers of its last steps.
struct PipelineRecord {
  static constexpr std::size_t kSteps = 50;
  struct Step {
    pipeline::Timeline timeline;
    double averaging = 0;  // seconds of waiting for the other pipelines' gradients, after the drain
    double optimizer = 0;
    double reducing = 0;  // seconds of the buckets' reductions, including those during the drain
    double seconds = 0;   // seconds of the whole step on this rank
  };
  pipeline::Schedule lowered;
  std::deque<Step> steps;
  int peak_activations = 0;
};

// The options of the Pipeline for this configuration.
PipelineOptions pipeline_options(const TrainingConfig& config);

// Where the network of this configuration is cut into stages.
std::vector<pipeline::Range> cut_of(const TrainingConfig& config, int stages);

// The rank's part of the model. Seeds torch's default generator. Afterwards the generator is in the state in which the
// whole model would have left it.
pipeline::Parts make_parts(const TrainingConfig& config, Rank rank);

// The seconds that each module of the model takes, forward and backward, for one microbatch of this configuration. Only
// one module exists at a time.
std::vector<double> measure_modules(const TrainingConfig& config);

// Makes the strategy `pipeline`. Collective.
std::unique_ptr<Strategy> make_pipeline(const Setup& setup);

}  // namespace lockstep::train
