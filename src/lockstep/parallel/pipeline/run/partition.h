// Where to cut a network into stages. The network is a list of modules, as in a torch::nn::Sequential, and a stage is a
// range of this list. A *layer* is a module with parameters together with the modules without parameters that follow
// it. Linear and ReLU, or Conv, ReLU and MaxPool, stay together, because a cut between them would send more and balance
// nothing.
//
//   std::vector<Range> ranges = partition(costs_of(*net), 4, Balance::parameters);
//   torch::nn::Sequential mine = cut(*net, ranges[1]);
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/model.h"
#include "lockstep/pipeline.h"
#include "lockstep/schedule.h"

namespace lockstep::pipeline {

// The modules [begin, end) of a network.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool operator==(const Range&) const = default;
};

// The cost of one module.
struct ModuleCost {
  std::int64_t parameters = 0;
  double seconds = 0;  // forward and backward, as measured by measure(); 0: not measured
};

// Returns one range per stage. No range is empty, and together they cover all modules. The most expensive stage is as
// cheap as possible, and the others are as equal as that allows. Throws UsageError if there are more stages than
// layers, or if the balance is by time and a layer has no time.
std::vector<Range> partition(std::span<const ModuleCost> modules, int stages, Balance balance = Balance::count);

// The costs of each module, without times.
std::vector<ModuleCost> costs_of(const torch::nn::SequentialImpl& network);

// The costs of each module, with times: the fastest of `repeats` runs on `input`, module by module. Gradients are left
// as they were. Different ranks measure different times, so one rank must measure and tell the others.
std::vector<ModuleCost> measure(const torch::nn::SequentialImpl& network, const torch::Tensor& input, int repeats = 3);

// The seconds that each of these modules takes. The modules are made one at a time, and none is kept.
std::vector<double> measure(std::span<const model::Layer> layers, const torch::Tensor& input, int repeats = 3);

// The modules of a range, shared with `network`, under the names that they have there.
torch::nn::Sequential cut(const torch::nn::SequentialImpl& network, Range range);

}  // namespace lockstep::pipeline
