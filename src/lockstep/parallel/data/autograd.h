// What libtorch's autograd is asked for, in one place: its internals differ from version to version.
//
// Why a post-hook of the accumulating node: Tensor::register_hook runs *before* the new gradient is added to what
// parameter.grad() holds. With accumulated gradients a hook there would see, and reduce, only the last part.
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace lockstep::parallel {

// Hooks on parameters, until it is destroyed. They run on the thread that runs backward.
class GradientHooks {
 public:
  using Hook = std::function<void()>;

  // Two that average would average twice: a parameter of one is a UsageError for the other.
  enum class Purpose { watch, average };
  explicit GradientHooks(Purpose purpose = Purpose::watch);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // `after`: parameter.grad() has been set or added to. `before`: it is about to be.
  void add(const torch::Tensor& parameter, Hook after, Hook before = {});
  // libtorch makes a new accumulating node for a parameter whose type changes (torch::load does that, too), and the
  // hooks stay on the old one, which no backward reaches any more. This moves them to the new ones.
  void follow();

 private:
  struct Held;
  void attach(Held& held) const;
  const Purpose purpose_;
  std::vector<Held> held_;
};

// To be called from a hook: `callback` runs when the whole backward is done, on the thread that called backward(),
// which throws what it throws.
void at_end_of_backward(std::function<void()> callback);

// `callback` runs each time a backward comes to `output`, and not for torch::autograd::grad(), which accumulates
// nothing. Without effect on a tensor that needs no gradient.
void when_backward_comes_to(const torch::Tensor& output, std::function<void()> callback);

}  // namespace lockstep::parallel
