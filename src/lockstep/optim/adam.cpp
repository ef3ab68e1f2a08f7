#include <cmath>
#include <memory>
#include <utility>

#include "lockstep/optim/one_pass.h"
#include "lockstep/optimizer.h"

namespace lockstep {
namespace {

using torch::optim::AdamOptions, torch::optim::AdamParamState;
using torch::optim::AdamWOptions, torch::optim::AdamWParamState;

enum class Decay { of_gradient, of_parameter };  // Adam's and AdamW's

template <Decay kDecay, typename Options, typename State>
void update(const torch::Tensor& parameter, const optim::Gradient& gradient, const Options& options, State& state) {
  const auto [beta1, beta2] = options.betas();
  state.step(state.step() + 1);
  const auto step = static_cast<double>(state.step());
  const double correction1 = 1 - std::pow(beta1, step);
  const double correction2 = 1 - std::pow(beta2, step);
  const bool decoupled = kDecay == Decay::of_parameter;
  optim::run(parameter, gradient,
             optim::AdamUpdate{
                 .parameter = parameter.data_ptr<float>(),
                 .gradient = gradient.data(),
                 .second = gradient.second(),
                 .average = state.exp_avg().template data_ptr<float>(),
                 .square = state.exp_avg_sq().template data_ptr<float>(),
                 .beta1 = static_cast<float>(beta1),
                 .rest1 = static_cast<float>(1 - beta1),
                 .beta2 = static_cast<float>(beta2),
                 .rest2 = static_cast<float>(1 - beta2),
                 .root = static_cast<float>(std::sqrt(correction2)),
                 .epsilon = static_cast<float>(options.eps()),
                 .minus_rate = static_cast<float>(-(options.lr() / correction1)),
                 .decay = decoupled ? 0 : static_cast<float>(options.weight_decay()),
                 .keep = decoupled ? static_cast<float>(1 - options.lr() * options.weight_decay()) : 1,
             });
  state.exp_avg().unsafeGetTensorImpl()->bump_version();
  state.exp_avg_sq().unsafeGetTensorImpl()->bump_version();
}

// Returns false, and has changed nothing, if there is something that the loop does not handle.
template <Decay kDecay, typename Options, typename State, typename States>
bool step_in_one_pass(const optim::Groups& groups, States& states) {
  using optim::Gradient;
  const auto handles = [&](const torch::Tensor& parameter, const Gradient& gradient, const Options& options) {
    const State* state = optim::find<State>(states, parameter);
    return !options.amsgrad() && gradient.fits(parameter) &&
           (state == nullptr ||
            (optim::fit(parameter, state->exp_avg()) && optim::fit(parameter, state->exp_avg_sq())));
  };
  if (!optim::for_all<Options>(groups, handles)) return false;
  const torch::NoGradGuard no_grad;
  return optim::for_all<Options>(groups,
                                 [&](const torch::Tensor& parameter, const Gradient& gradient, const Options& options) {
                                   auto& slot = states[libtorch::state_key(parameter)];
                                   if (!slot) {
                                     auto state = std::make_unique<State>();
                                     state->step(0);
                                     state->exp_avg(torch::zeros_like(parameter, at::MemoryFormat::Preserve));
                                     state->exp_avg_sq(torch::zeros_like(parameter, at::MemoryFormat::Preserve));
                                     slot = std::move(state);
                                   }
                                   update<kDecay>(parameter, gradient, options, static_cast<State&>(*slot));
                                   return true;
                                 });
}

}  // namespace

torch::Tensor Adam::step(LossClosure closure) {
  torch::Tensor loss = optim::loss_of(closure);
  if (!step_in_one_pass<Decay::of_gradient, AdamOptions, AdamParamState>(param_groups_, state_)) {
    optim::average_all(param_groups_);
    torch::optim::Adam::step();
  }
  return loss;
}

torch::Tensor AdamW::step(LossClosure closure) {
  torch::Tensor loss = optim::loss_of(closure);
  if (!step_in_one_pass<Decay::of_parameter, AdamWOptions, AdamWParamState>(param_groups_, state_)) {
    optim::average_all(param_groups_);
    torch::optim::AdamW::step();
  }
  return loss;
}

}  // namespace lockstep
