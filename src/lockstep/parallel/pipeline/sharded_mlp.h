// ShardedMLP: some modules of a FullMLP, for one stage of a pipeline.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "lockstep/parallel/pipeline/partition.h"

namespace lockstep::pipeline {

// The sizes of model::FullMLP.
struct MLPSizes {
  std::int64_t dim = 0;
  std::int64_t depth = 0;
  std::int64_t outputs = 2;
};

// What the whole network's modules cost, without making it.
std::vector<ModuleCost> costs_of(const MLPSizes& sizes);

// The modules [begin, end) of FullMLP(dim, depth, outputs), with the same bits and names.
//
// The weights of the whole network are drawn, in its order, from torch's default generator, so all ranks and the whole
// network start from one seed. Those of other stages are dropped one layer at a time: no rank ever holds the whole
// network. Only `range` has to fit into memory.
struct ShardedMLPImpl : torch::nn::SequentialImpl {
  ShardedMLPImpl(const MLPSizes& sizes, Range range);
};
TORCH_MODULE(ShardedMLP);

}  // namespace lockstep::pipeline
