// Training through one pipeline, or through several pipelines side by side.
//
// Ranks [r * stages, (r + 1) * stages) are pipeline r. Each pipeline has its share of the batch. The ranks that have
// the same stage in all pipelines average their gradients, once per step.
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
    double reducing = 0;  // seconds of the buckets' reductions, including those during the drain
    double seconds = 0;   // seconds of the whole step on this rank
  };
  pipeline::Schedule lowered;
  std::deque<Step> steps;
  int peak_activations = 0;
};

// Where the network of this configuration is cut into stages.
std::vector<pipeline::Range> cut_of(const TrainingConfig& config, int stages);

// The stages of a rank, made in the order of their numbers. Seeds torch's default generator before each stage.
// Afterwards the generator is in the state in which the whole model would have left it.
std::vector<torch::nn::Sequential> make_stages(const TrainingConfig& config, Rank rank);

// The modules of all these stages in one, under their names.
torch::nn::Sequential joined(const std::vector<torch::nn::Sequential>& stages);

// Selects the tensors of the model that are on other ranks and not on this one.
Choice tensors_elsewhere(const TrainingConfig& config, Rank rank);

// The seconds that each module of the model takes, forward and backward, for one microbatch of this configuration. Only
// one module exists at a time.
std::vector<double> measure_modules(const TrainingConfig& config);

// Makes the strategy `pipeline`. Collective.
std::unique_ptr<Strategy> make_pipeline(const Setup& setup);

}  // namespace lockstep::train
