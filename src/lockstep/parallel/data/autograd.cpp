#include "lockstep/parallel/data/autograd.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::variable_list;

struct After final : torch::autograd::FunctionPostHook {
  After(GradientHooks::Hook hook, GradientHooks::Purpose why) : call(std::move(hook)), purpose(why) {}
  variable_list operator()(const variable_list& outputs, const variable_list& /*inputs*/) override {
    call();
    return outputs;
  }
  GradientHooks::Hook call;
  GradientHooks::Purpose purpose;
};

struct Before final : torch::autograd::FunctionPreHook {
  explicit Before(GradientHooks::Hook hook) : call(std::move(hook)) {}
  variable_list operator()(const variable_list& gradients) override {
    call();
    return gradients;
  }
  GradientHooks::Hook call;
};

}  // namespace

struct GradientHooks::Held {
  // The node that adds to a parameter's gradient. It is held here because the tensor itself has only a weak pointer to
  // it. decltype is used because the type of the pointer differs between versions of libtorch.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));
  torch::Tensor parameter{};
  Hook call_after{};
  Hook call_before{};
  Accumulator accumulator{};
  std::uintptr_t after = 0;
  const void* before = nullptr;

  void detach() const {
    accumulator->del_post_hook(after);
    std::erase_if(accumulator->pre_hooks(), [&](const auto& hook) { return hook.get() == before; });
  }
};

GradientHooks::GradientHooks(Purpose purpose) : purpose_(purpose) {}

void GradientHooks::add(const torch::Tensor& parameter, Hook after, Hook before) {
  if (!parameter.requires_grad() || !parameter.is_leaf())
    throw UsageError("a gradient hook on a tensor that gets no gradient", "a leaf with requires_grad");
  Held held{.parameter = parameter, .call_after = std::move(after), .call_before = std::move(before)};
  attach(held);
  held_.push_back(std::move(held));
}

void GradientHooks::attach(Held& held) const {
  held.accumulator = torch::autograd::impl::grad_accumulator(held.parameter);
  for (const auto& hook : held.accumulator->post_hooks()) {
    const auto* other = dynamic_cast<const After*>(hook.get());
    if (purpose_ == Purpose::average && other != nullptr && other->purpose == Purpose::average)
      throw UsageError("a parameter is averaged over ranks by somebody else already",
                       "one DistributedDataParallel for a module, or the other one destroyed before");
  }
  held.after = held.accumulator->add_post_hook(std::make_unique<After>(held.call_after, purpose_));
  if (!held.call_before) return;
  auto hook = std::make_unique<Before>(held.call_before);
  held.before = hook.get();
  held.accumulator->add_pre_hook(std::move(hook));
}

void GradientHooks::follow() {
  for (Held& held : held_) {
    if (!held.parameter.requires_grad() ||
        torch::autograd::impl::try_get_grad_accumulator(held.parameter) == held.accumulator)
      continue;
    held.detach();
    attach(held);
  }
}

GradientHooks::~GradientHooks() {
  for (const Held& held : held_) held.detach();
}

namespace {

// Who refers to a gradient: the number of tensors that share its memory, and the number of references to the tensor of
// which it is a view. (libtorch makes the tensor of a gradient as a view of what backward has computed.)
struct Holders {
  std::size_t memory = 0;
  std::size_t base = 0;
};

Holders holders_of(const torch::Tensor& gradient) {
  const auto* view = torch::autograd::impl::get_view_autograd_meta(gradient);
  return {gradient.storage().use_count(),
          view != nullptr && view->has_fw_view() ? view->get_forward_view().base_.use_count() : 0};
}

// The holders of a gradient that nobody else refers to. They depend on the version of libtorch, so they are measured.
template <typename Function>
Holders measured(const Function& function) {
  const torch::AutoGradMode with_gradients(true);
  const torch::Tensor leaf = torch::ones({2}, at::TensorOptions(at::kFloat).requires_grad(true));
  Holders found;
  GradientHooks hooks;
  hooks.add(leaf, [&] { found = holders_of(leaf.grad()); });
  (function(leaf) * 2).sum().backward();
  return found;
}

}  // namespace

bool is_nobody_elses(const torch::Tensor& gradient) {
  // Backward has computed the gradient itself, or something of which it is a view. A backward inside a backward
  // measures them the first time.
  static const Holders itself = measured([](const torch::Tensor& leaf) { return leaf; });
  static const Holders view = measured([](const torch::Tensor& leaf) { return leaf.view({2, 1}); });
  const Holders now = holders_of(gradient);
  return (now.memory == itself.memory && now.base == itself.base) ||
         (now.memory == view.memory && now.base == view.base);
}

void at_end_of_backward(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

void when_backward_comes_to(const torch::Tensor& output, std::function<void()> callback) {
  if (!output.defined() || !output.requires_grad()) return;
  output.register_hook([callback = std::move(callback)](const torch::Tensor& gradient) {
    const auto* only = torch::autograd::get_current_graph_task_exec_info();  // not empty in grad()
    if (only == nullptr || only->empty()) callback();
    return gradient;
  });
}

}  // namespace lockstep::parallel
