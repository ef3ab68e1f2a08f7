#include "lockstep/parallel/pipeline/run/partition.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/schedule.h"

namespace lockstep::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The first module of each layer. Modules before the first parameters belong to the first layer.
std::vector<std::int64_t> layer_begins(std::span<const ModuleCost> modules) {
  std::vector<std::int64_t> begins;
  for (std::size_t i = 0; i < modules.size(); ++i)
    if (modules[i].parameters > 0) begins.push_back(static_cast<std::int64_t>(i));
  if (begins.empty() && !modules.empty()) begins.push_back(0);
  if (!begins.empty()) begins.front() = 0;
  return begins;
}

double cost_of(const ModuleCost& module, Balance balance) {
  if (balance == Balance::parameters) return static_cast<double>(module.parameters);
  return balance == Balance::time ? module.seconds : 0;
}

std::vector<double> layer_costs(std::span<const ModuleCost> modules, std::span<const std::int64_t> begins,
                                Balance balance) {
  std::vector<double> costs(begins.size(), balance == Balance::count ? 1 : 0);
  for (std::size_t layer = 0; layer < begins.size(); ++layer) {
    const std::size_t end = layer + 1 < begins.size() ? static_cast<std::size_t>(begins[layer + 1]) : modules.size();
    for (auto i = static_cast<std::size_t>(begins[layer]); i < end; ++i) costs[layer] += cost_of(modules[i], balance);
  }
  return costs;
}

// best[s][i] is the lowest price of cutting the layers from i on into s stages. `price` combines the cost of one stage
// with the price of the rest. The table is filled for all i, so that the cuts can be read off from the front.
template <typename Price>
std::vector<std::vector<double>> best_prices(const std::vector<double>& sums, int stages, Price price) {
  const std::size_t layers = sums.size() - 1;
  std::vector best(static_cast<std::size_t>(stages) + 1, std::vector<double>(layers + 1, kNever));
  best[0][layers] = 0;
  for (std::size_t s = 1; s < best.size(); ++s)
    for (std::size_t i = 0; i < layers; ++i)
      for (std::size_t j = i + 1; j <= layers; ++j)
        if (best[s - 1][j] < kNever) best[s][i] = std::min(best[s][i], price(sums[j] - sums[i], best[s - 1][j]));
  return best;
}

// The first layer of each stage, followed by the number of layers.
std::vector<std::size_t> cuts(const std::vector<double>& costs, int stages) {
  std::vector<double> sums{0};
  for (const double cost : costs) sums.push_back(sums.back() + cost);
  const double dearest =
      best_prices(sums, stages, [](double stage, double rest) { return std::max(stage, rest); }).back().front();
  // Among the cuts whose most expensive stage is as cheap as possible, choose the most equal one, with the smallest sum
  // of squares. The limit is a little higher, because sums are rounded.
  const double limit = dearest * (1 + 1e-9);
  const auto price = [limit](double stage, double rest) { return stage > limit ? kNever : stage * stage + rest; };
  const auto best = best_prices(sums, stages, price);

  std::vector<std::size_t> found{0};
  for (auto s = static_cast<std::size_t>(stages); s > 0; --s) {
    const std::size_t i = found.back();
    std::size_t chosen = i + 1;
    // Search from the back: of two equally good cuts, take the one whose earlier stage is larger, as with chunks.
    for (std::size_t j = costs.size(); j > i; --j)
      if (best[s - 1][j] < kNever && price(sums[j] - sums[i], best[s - 1][j]) <= best[s][i]) {
        chosen = j;
        break;
      }
    found.push_back(chosen);
  }
  return found;
}

double seconds_of(torch::nn::AnyModule& module, const torch::Tensor& input, std::span<const torch::Tensor> parameters) {
  const torch::Tensor leaf = input.detach().requires_grad_(input.is_floating_point());
  std::vector<torch::Tensor> wanted;
  if (leaf.requires_grad()) wanted.push_back(leaf);
  for (const torch::Tensor& parameter : parameters)
    if (parameter.requires_grad()) wanted.push_back(parameter);
  const auto start = Clock::now();
  const torch::Tensor output = module.forward(leaf);
  // grad() instead of backward(), so that existing gradients stay as they are.
  if (output.requires_grad()) torch::autograd::grad({output}, wanted, {torch::ones_like(output)}, {}, false, true);
  return seconds_since(start);
}

// Returns the time of the fastest run on `value`, which is then replaced by the module's output. `module` is not const
// because a const AnyModule cannot be run.
double measure_next(torch::nn::AnyModule& module, torch::Tensor& value, int repeats) {
  const std::vector<torch::Tensor> parameters = module.ptr()->parameters();
  double quickest = kNever;
  for (int repeat = 0; repeat < std::max(1, repeats); ++repeat)
    quickest = std::min(quickest, seconds_of(module, value, parameters));
  const torch::NoGradGuard no_grad;
  value = module.forward(value);
  return quickest;
}

}  // namespace

std::vector<Range> partition(std::span<const ModuleCost> modules, int stages, Balance balance) {
  const std::vector<std::int64_t> begins = layer_begins(modules);
  if (stages < 1) throw UsageError(fmt::format("{} stages can't be", stages), "1 stage or more");
  if (static_cast<std::size_t>(stages) > begins.size()) refuse_stages(stages, static_cast<std::int64_t>(begins.size()));
  std::vector<double> costs = layer_costs(modules, begins, balance);
  if (balance == Balance::time && *std::min_element(costs.begin(), costs.end()) <= 0)
    throw UsageError("the stages can't be balanced by time: a layer has none", "measure() for the costs");

  const std::vector<std::size_t> layers = cuts(costs, stages);
  std::vector<Range> ranges;
  for (std::size_t s = 0; s + 1 < layers.size(); ++s)
    ranges.push_back({begins[layers[s]], layers[s + 1] < begins.size() ? begins[layers[s + 1]]
                                                                       : static_cast<std::int64_t>(modules.size())});
  return ranges;
}

std::vector<ModuleCost> costs_of(const torch::nn::SequentialImpl& network) {
  std::vector<ModuleCost> costs;
  for (const auto& module : network) {
    ModuleCost cost;
    for (const torch::Tensor& parameter : module.ptr()->parameters()) cost.parameters += parameter.numel();
    costs.push_back(cost);
  }
  return costs;
}

std::vector<ModuleCost> measure(const torch::nn::SequentialImpl& network, const torch::Tensor& input, int repeats) {
  std::vector<ModuleCost> costs = costs_of(network);
  torch::Tensor value = input;
  std::size_t i = 0;
  for (torch::nn::AnyModule module : network) costs[i++].seconds = measure_next(module, value, repeats);
  return costs;
}

std::vector<double> measure(std::span<const model::Layer> layers, const torch::Tensor& input, int repeats) {
  std::vector<double> seconds;
  torch::Tensor value = input;
  for (const model::Layer& layer : layers) {
    torch::nn::AnyModule module = layer.make();
    seconds.push_back(measure_next(module, value, repeats));
  }
  return seconds;
}

torch::nn::Sequential cut(const torch::nn::SequentialImpl& network, Range range) {
  const auto names = network.named_children();
  if (range.begin < 0 || range.end > static_cast<std::int64_t>(names.size()) || range.begin >= range.end)
    throw UsageError(fmt::format("modules {} to {} of a network of {}", range.begin, range.end, names.size()),
                     "a range from partition() of this network");
  torch::nn::Sequential part;
  for (std::int64_t i = range.begin; i < range.end; ++i)
    part->push_back(names[index_of(i)].key(), *(network.begin() + i));
  return part;
}

}  // namespace lockstep::pipeline
