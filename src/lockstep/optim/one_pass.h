// What the optimizers of optimizer.h have in common: which parameters they handle, how they walk over them, and how a
// loop over a parameter's memory is divided among threads.
#pragma once

#include <c10/util/FunctionRef.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "lockstep/libtorch/versions.h"
#include "lockstep/optim/kernel.h"

namespace lockstep::optim {

using Groups = std::vector<torch::optim::OptimizerParamGroup>;

// Calls the closure, if there is one, with gradients switched on, and returns its loss.
torch::Tensor loss_of(const torch::optim::Optimizer::LossClosure& closure);

// True if one loop can walk over the memory of both tensors: float32 on the CPU, without gaps, of the same shape, and
// with their elements in the same order.
bool fit(const torch::Tensor& parameter, const torch::Tensor& other);

// Calls work(begin, end) for parts of the parameter's elements as they lie in memory, on the threads that libtorch may
// use (at::get_num_threads) if the parameter is large enough. The tensor must fit itself.
void in_parts(const torch::Tensor& parameter, c10::function_ref<void(std::size_t begin, std::size_t end)> work);

// Runs the loop of kernel.h that is the fastest on this machine, and increments the version counter of the parameter.
template <typename Update>
void run(const torch::Tensor& parameter, const Update& update) {
  in_parts(parameter, [&](std::size_t begin, std::size_t end) {
#if defined(__x86_64__)
    static const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (wide) return avx2::apply(update, begin, end);
#endif
    baseline::apply(update, begin, end);
  });
  parameter.unsafeGetTensorImpl()->bump_version();
}

// Calls function(parameter, options of its group) for every parameter with a gradient, until it returns false. True if
// it never did.
template <typename Options, typename Function>
bool for_all(const Groups& groups, const Function& function) {
  for (const auto& group : groups)
    for (const torch::Tensor& parameter : group.params())
      if (parameter.grad().defined() && !function(parameter, static_cast<const Options&>(group.options())))
        return false;
  return true;
}

// The state of a parameter, or null if it has none yet.
template <typename State, typename States>
State* find(const States& states, const torch::Tensor& parameter) {
  const auto found = states.find(libtorch::state_key(parameter));
  return found == states.end() ? nullptr : static_cast<State*>(found->second.get());
}

}  // namespace lockstep::optim
