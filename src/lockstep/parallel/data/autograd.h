// The calls into libtorch's autograd that data parallelism needs. They are in one place because autograd's internals
// differ from version to version.
//
// Why a post-hook of the accumulating node, and not Tensor::register_hook: the latter runs *before* the new gradient is
// added to the value of parameter.grad(). When gradients are accumulated over several backward passes, such a hook
// would see, and reduce, only the newest part.
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace lockstep::parallel {

// Hooks on the gradients of parameters. They stay until this object is destroyed, and run on the thread that runs
// backward.
class GradientHooks {
 public:
  using Hook = std::function<void()>;

  // Two objects that average the same parameter would average its gradient twice. So add() throws UsageError if this
  // object averages and the parameter has an averaging hook already.
  enum class Purpose { watch, average };
  explicit GradientHooks(Purpose purpose = Purpose::watch);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // `after` runs when parameter.grad() has been set or added to, and `before` runs just before that. Throws UsageError
  // if `parameter` is not a leaf that requires a gradient.
  void add(const torch::Tensor& parameter, Hook after, Hook before = {});
  // Moves the hooks to new accumulating nodes. libtorch makes a new node for a parameter whose type changes
  // (torch::load does that, too). The hooks then stay on the old node, which no backward reaches any more.
  void follow();

 private:
  struct Held;
  void attach(Held& held) const;
  const Purpose purpose_;
  std::vector<Held> held_;
};

// True if a gradient that has just been set shares its memory with no other tensor that is still in use. Must be called
// from its `after` hook.
bool is_nobody_elses(const torch::Tensor& gradient);

// Must be called from a hook. `callback` runs when the backward that runs the hook is done, on the thread that called
// this backward. An exception from `callback` is thrown by backward(). In a backward inside a backward (reentrant
// checkpointing), this is the end of the inner one.
void at_end_of_backward(std::function<void()> callback);

// `callback` runs each time a backward reaches `output`, but not in torch::autograd::grad(), which accumulates nothing.
// Has no effect on a tensor that does not require a gradient.
void when_backward_comes_to(const torch::Tensor& output, std::function<void()> callback);

}  // namespace lockstep::parallel
