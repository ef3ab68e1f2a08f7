// What the optimizers of optimizer.h have in common: which parameters they handle, how they walk over them, and how a
// loop over a parameter's memory is divided among threads.
#pragma once

#include <c10/util/FunctionRef.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "lockstep/libtorch/versions.h"
#include "lockstep/optim/kernel.h"
#include "lockstep/optim/unaveraged.h"

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

// Where the gradient of a parameter is: in parameter.grad(), in the parts of all ranks, or nowhere.
struct Gradient {
  explicit Gradient(const torch::Tensor& parameter)
      : tensor(parameter.grad()), unaveraged(tensor.defined() ? nullptr : Unaveraged::find(parameter)) {}
  bool is_there() const { return tensor.defined() || unaveraged != nullptr; }
  bool fits(const torch::Tensor& parameter) const { return unaveraged != nullptr || fit(parameter, tensor); }
  // Null if a tile must be averaged first.
  const float* data() const {
    if (tensor.defined()) return tensor.data_ptr<float>();
    return is_of_two() ? unaveraged->part(0) : nullptr;
  }
  const float* second() const { return is_of_two() ? unaveraged->part(1) : nullptr; }
  bool is_of_two() const { return unaveraged != nullptr && unaveraged->parts() == 2; }

  torch::Tensor tensor;
  Unaveraged* unaveraged;
};

// The loop of kernel.h that is the fastest on this machine.
template <typename Update>
void apply(const Update& update, std::size_t begin, std::size_t end) {
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (wide) return avx2::apply(update, begin, end);
#endif
  baseline::apply(update, begin, end);
}

// Makes a step, and increments the version counter of the parameter.
template <typename Update>
void run(const torch::Tensor& parameter, const Gradient& gradient, const Update& update) {
  Unaveraged* const unaveraged = gradient.unaveraged;
  in_parts(parameter, [&](std::size_t begin, std::size_t end) {
    if (update.gradient != nullptr) return apply(update, begin, end);
    std::array<float, Unaveraged::kTile> tile;
    for (std::size_t at = begin; at < end; at += tile.size()) {
      const std::size_t count = std::min(tile.size(), end - at);
      unaveraged->mean(at, count, tile.data());
      apply(update.with_gradient(tile.data(), at), 0, count);
    }
  });
  if (unaveraged != nullptr) unaveraged->note_used();
  parameter.unsafeGetTensorImpl()->bump_version();
}

// Calls function(parameter, its gradient, options of its group) for every parameter with a gradient, until it returns
// false. True if it never did.
template <typename Options, typename Function>
bool for_all(const Groups& groups, const Function& function) {
  for (const auto& group : groups)
    for (const torch::Tensor& parameter : group.params())
      if (const Gradient gradient(parameter);
          gradient.is_there() && !function(parameter, gradient, static_cast<const Options&>(group.options())))
        return false;
  return true;
}

// For a step that libtorch's class makes: gives every parameter its gradient.
void average_all(const Groups& groups);

// The state of a parameter, or null if it has none yet.
template <typename State, typename States>
State* find(const States& states, const torch::Tensor& parameter) {
  const auto found = states.find(libtorch::state_key(parameter));
  return found == states.end() ? nullptr : static_cast<State*>(found->second.get());
}

}  // namespace lockstep::optim
