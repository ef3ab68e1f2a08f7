// Where to cut a network into stages. The network is a list of modules, as a torch::nn::Sequential has them; a stage is
// a range of it. A *layer* is a module with parameters and those without that follow it: Linear and ReLU, or Conv, ReLU
// and MaxPool, stay together, because a cut between them would send more and balance nothing.
//
//   std::vector<Range> ranges = partition(costs_of(*net), 4, Balance::parameters);
//   torch::nn::Sequential mine = cut(*net, ranges[1]);
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/model/layers.h"

namespace lockstep::pipeline {

// Modules [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool operator==(const Range&) const = default;
};

// What one module costs.
struct ModuleCost {
  std::int64_t parameters = 0;
  double seconds = 0;  // forward and backward, as measure() has it; 0: not measured
};

enum class Balance { count, parameters, time };

// One range a stage, none empty, all modules covered. What does not divide is spread: the dearest stage is as cheap as
// can be, and the others as equal as that allows. More stages than layers is a UsageError.
std::vector<Range> partition(std::span<const ModuleCost> modules, int stages, Balance balance = Balance::count);

// The costs of each module, not measured.
std::vector<ModuleCost> costs_of(const torch::nn::SequentialImpl& network);

// The same with times: the quickest of `repeats` runs on `input`, module by module. Gradients are left as they were.
// Ranks measure differently: one of them measures, and the others are told.
std::vector<ModuleCost> measure(const torch::nn::SequentialImpl& network, const torch::Tensor& input, int repeats = 3);

// The seconds of each of these modules; they are made one at a time, and none is kept.
std::vector<double> measure(std::span<const model::Layer> layers, const torch::Tensor& input, int repeats = 3);

// The modules of a range, shared with `network`, by the names that they have there.
torch::nn::Sequential cut(const torch::nn::SequentialImpl& network, Range range);

}  // namespace lockstep::pipeline
