#include "lockstep/parallel/pipeline/sharded_mlp.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/base/error.h"
#include "lockstep/model/limits.h"

namespace lockstep::pipeline {

std::vector<ModuleCost> costs_of(const MLPSizes& sizes) {
  model::check_size("dim", sizes.dim);
  model::check_size("depth", sizes.depth);
  model::check_size("outputs", sizes.outputs);
  std::vector<ModuleCost> costs;
  for (std::int64_t layer = 0; layer < sizes.depth; ++layer) {
    costs.push_back({.parameters = (sizes.dim + 1) * sizes.dim});
    costs.push_back({});
  }
  costs.push_back({.parameters = (sizes.dim + 1) * sizes.outputs});
  return costs;
}

ShardedMLPImpl::ShardedMLPImpl(const MLPSizes& sizes, Range range) {
  const std::vector<ModuleCost> costs = costs_of(sizes);
  const auto modules = static_cast<std::int64_t>(costs.size());
  if (range.begin < 0 || range.end > modules || range.begin >= range.end)
    throw UsageError(fmt::format("modules {} to {} of an MLP of {}", range.begin, range.end, modules),
                     "a range from partition(costs_of(sizes), stages)");
  double mine = 0;
  for (std::int64_t i = range.begin; i < range.end; ++i)
    mine += static_cast<double>(costs[static_cast<std::size_t>(i)].parameters);
  model::check_fits(fmt::format("a stage of an MLP of depth {} and dim {}", sizes.depth, sizes.dim), mine);

  for (std::int64_t i = 0; i < modules; ++i) {
    const bool keep = i >= range.begin && i < range.end;
    if (i % 2 == 0) {
      const torch::nn::Linear linear(sizes.dim, i + 1 < modules ? sizes.dim : sizes.outputs);
      if (keep) push_back(std::to_string(i), linear);
    } else if (keep) {
      push_back(std::to_string(i), torch::nn::ReLU());
    }
  }
}

}  // namespace lockstep::pipeline
