// Training through a pipeline, or through several beside each other.
//
// Ranks [r * stages, (r + 1) * stages) are pipeline r. Each has its share of the batch; the ranks that have the same
// stage in all pipelines average their gradients, once a step.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "lockstep/parallel/pipeline/moments.h"
#include "lockstep/parallel/pipeline/partition.h"
#include "lockstep/parallel/pipeline/schedule.h"
#include "lockstep/train/safetensors.h"
#include "lockstep/train/strategy.h"

namespace lockstep::train {

// What one rank remembers of its last steps.
struct PipelineRecord {
  static constexpr std::size_t kSteps = 50;
  struct Step {
    pipeline::Timeline timeline;
    double averaging = 0;  // seconds of waiting for the other pipelines' gradients, after the drain
    double optimizer = 0;
    double reducing = 0;  // seconds of the buckets' reductions, also those that ran during the drain
    double seconds = 0;   // of the whole step on this rank
  };
  pipeline::Schedule lowered;
  std::deque<Step> steps;
  int peak_activations = 0;
};

// Where a network of this configuration is cut.
std::vector<pipeline::Range> cut_of(const TrainingConfig& config, int stages);

// The stages of a rank, made in the order of their numbers. Seeds torch's default generator before each; after it, the
// generator stands where the whole model would have left it.
std::vector<torch::nn::Sequential> make_stages(const TrainingConfig& config, Rank rank);

// The same modules in one, by their names.
torch::nn::Sequential joined(const std::vector<torch::nn::Sequential>& stages);

// Chooses the tensors of the model that are on other ranks than this one.
Choice tensors_elsewhere(const TrainingConfig& config, Rank rank);

// Seconds that each module of the model takes, forward and backward, for a microbatch of this configuration. One module
// is there at a time.
std::vector<double> measure_modules(const TrainingConfig& config);

// Collective.
std::unique_ptr<Strategy> make_pipeline(const Setup& setup);

}  // namespace lockstep::train
