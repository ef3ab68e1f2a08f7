// The modules of one stage of a pipeline: make_stage() for any model, and ShardedMLP for a FullMLP.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "lockstep/model.h"
#include "lockstep/parallel/pipeline/run/partition.h"

namespace lockstep::pipeline {

// The sizes of model::FullMLP.
struct MLPSizes {
  std::int64_t dim = 0;
  std::int64_t depth = 0;
  std::int64_t outputs = 2;
};

// The costs of the whole network's modules, computed without making the network.
std::vector<ModuleCost> costs_of(std::span<const model::Layer> layers);
std::vector<ModuleCost> costs_of(const MLPSizes& sizes);

// The modules [begin, end) of a model, with the bits and names that they have in the whole model.
//
// The weights of the whole model are drawn, in its order, from torch's default generator, so that all ranks and the
// whole model can start from one seed. The layers of other stages are dropped one at a time: no rank ever holds the
// whole model, and only `range` has to fit into memory.
torch::nn::Sequential make_stage(std::span<const model::Layer> layers, Range range);

// make_stage() of FullMLP(dim, depth, outputs).
struct ShardedMLPImpl : torch::nn::SequentialImpl {
  ShardedMLPImpl(const MLPSizes& sizes, Range range);
};
TORCH_MODULE(ShardedMLP);

}  // namespace lockstep::pipeline
