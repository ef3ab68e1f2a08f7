#include "lockstep/parallel/pipeline/run/sharded_mlp.h"

#include <fmt/format.h>

#include "lockstep/error.h"
#include "lockstep/model/limits.h"

namespace lockstep::pipeline {
namespace {

void fill(torch::nn::SequentialImpl& part, std::span<const model::Layer> layers, Range range) {
  const auto modules = static_cast<std::int64_t>(layers.size());
  if (range.begin < 0 || range.end > modules || range.begin >= range.end)
    throw UsageError(fmt::format("modules {} to {} of a model of {}", range.begin, range.end, modules),
                     "a range from partition(costs_of(...), stages)");
  double mine = 0;
  for (std::int64_t i = range.begin; i < range.end; ++i) mine += static_cast<double>(layers[index_of(i)].parameters);
  model::check_fits(fmt::format("the stage of modules {} to {}", range.begin, range.end), mine);

  for (std::int64_t i = 0; i < modules; ++i) {
    const torch::nn::AnyModule module = layers[index_of(i)].make();
    if (i >= range.begin && i < range.end) part.push_back(std::to_string(i), module);
  }
}

}  // namespace

std::vector<ModuleCost> costs_of(std::span<const model::Layer> layers) {
  std::vector<ModuleCost> costs;
  for (const model::Layer& layer : layers) costs.push_back({.parameters = layer.parameters});
  return costs;
}

std::vector<ModuleCost> costs_of(const MLPSizes& sizes) {
  return costs_of(model::mlp_layers(sizes.dim, sizes.depth, sizes.outputs));
}

torch::nn::Sequential make_stage(std::span<const model::Layer> layers, Range range) {
  torch::nn::Sequential part;
  fill(*part, layers, range);
  return part;
}

ShardedMLPImpl::ShardedMLPImpl(const MLPSizes& sizes, Range range) {
  fill(*this, model::mlp_layers(sizes.dim, sizes.depth, sizes.outputs), range);
}

}  // namespace lockstep::pipeline
