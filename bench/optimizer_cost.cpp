// The time of an optimizer's step on the parameters of an MLP, Lockstep's beside libtorch's, on one thread.
//
//   optimizer_cost [ROUNDS]      prints one line per optimizer and model, in ms: the fastest step of each side
//
// In each round both sides make some steps, one side after the other, each on parameters of its own. The minimum
// counts, because everything else that runs on a machine can only make a step slower.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/model.h"
#include "lockstep/optimizer.h"

namespace {

using torch::optim::AdamOptions, torch::optim::AdamWOptions, torch::optim::SGDOptions;

std::vector<torch::Tensor> parameters_of_mlp(int dim) {
  std::vector<torch::Tensor> parameters = lockstep::model::FullMLP(dim, 16)->parameters();
  for (torch::Tensor& parameter : parameters) parameter.mutable_grad() = torch::randn_like(parameter);
  return parameters;
}

double fastest_of(torch::optim::Optimizer& optimizer, int steps) {
  double fastest = 1e9;
  for (int step = 0; step < steps; ++step) {
    const auto start = lockstep::Clock::now();
    optimizer.step();
    fastest = std::min(fastest, lockstep::seconds_since(start));
  }
  return fastest;
}

template <typename Mine, typename Theirs, typename Options>
void compare(const char* name, const Options& options, int rounds) {
  for (const int dim : {128, 1024}) {
    const std::vector<torch::Tensor> parameters = parameters_of_mlp(dim);
    Mine mine(parameters, options);
    Theirs theirs(parameters, options);
    const int steps = dim == 128 ? 50 : 3;
    double my_time = 1e9, their_time = 1e9;
    for (int round = 0; round < rounds; ++round) {
      my_time = std::min(my_time, fastest_of(mine, steps));
      their_time = std::min(their_time, fastest_of(theirs, steps));
    }
    fmt::print("{:15} 16 x {:<5} {:8.3f} {:8.3f} {:6.1f} x\n", name, dim, my_time * 1e3, their_time * 1e3,
               their_time / my_time);
  }
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  fmt::print("{:15} {:10} {:>8} {:>8}\n", "ms a step", "mlp", "lockstep", "libtorch");
  compare<lockstep::Adam, torch::optim::Adam>("Adam", AdamOptions(1e-3), rounds);
  compare<lockstep::AdamW, torch::optim::AdamW>("AdamW", AdamWOptions(1e-3), rounds);
  compare<lockstep::SGD, torch::optim::SGD>("SGD", SGDOptions(1e-3), rounds);
  compare<lockstep::SGD, torch::optim::SGD>("SGD, momentum", SGDOptions(1e-3).momentum(0.9), rounds);
}
