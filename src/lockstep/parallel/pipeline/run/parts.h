// A rank's part of a model that is cut into the stages of a pipeline.
//
// Cutting needs no communicator: every rank computes the same cut from the same model and the same options.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/model.h"
#include "lockstep/parallel/pipeline/run/partition.h"
#include "lockstep/pipeline.h"
#include "lockstep/schedule.h"

namespace lockstep::pipeline {

struct Parts {
  Schedule schedule;
  std::vector<Range> ranges;                  // [stage] its modules
  std::vector<std::string> names;             // [module] its name in the whole model
  std::vector<std::int64_t> parameters;       // [module] number of elements
  Rank position = 0;                          // this rank's number in its pipeline
  std::vector<int> mine;                      // numbers of this rank's stages, in ascending order
  std::vector<torch::nn::Sequential> stages;  // the modules of these stages

  // The modules of all these stages in one, under their names.
  torch::nn::Sequential joined() const;
  // True for names of tensors that the model has on other ranks and not on this one.
  std::function<bool(const std::string& tensor)> elsewhere() const;
  // One line per stage: its rank, its modules, its parameters.
  std::string table() const;
};

// The schedule that the options describe, for pipelines of `ranks_in_pipeline` ranks.
Schedule schedule_for(const PipelineOptions& options, int ranks_in_pipeline);

// The ranks in one pipeline, if there are `ranks` ranks in all. Throws UsageError if that is no whole number of
// pipelines.
int ranks_in_pipeline(const PipelineOptions& options, int ranks);

// Cuts a network that this rank has as a whole. The modules are shared, not copied. Throws UsageError if two stages
// share a parameter, because each would train its own copy.
Parts cut_network(const torch::nn::SequentialImpl& network, Rank rank, int ranks, const PipelineOptions& options);

// Makes this rank's modules of a model that need not fit in its memory. The weights of the whole model are drawn, in
// its order, from torch's default generator, and the modules of other ranks are dropped one at a time. So all ranks and
// the whole model can start from one seed, and the generator is left as the whole model would leave it. Throws
// UsageError as cut_network() does, if the layers share a parameter that outlives them.
Parts make_parts(std::span<const model::Layer> layers, Rank rank, int ranks, const PipelineOptions& options);

// The number of parameters of each layer. A layer that does not say it is made and dropped; the generator is left as
// it was.
std::vector<ModuleCost> count_parameters(std::span<const model::Layer> layers);

}  // namespace lockstep::pipeline
