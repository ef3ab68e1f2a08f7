#include <memory>
#include <utility>

#include "lockstep/optim/one_pass.h"
#include "lockstep/optimizer.h"

namespace lockstep {
namespace {

using optim::Gradient;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

// The parameter's momentum. The first step makes it the gradient, without dampening: `first` is set then.
template <typename States>
torch::Tensor momentum_of(const torch::Tensor& parameter, States& states, bool& first) {
  auto& slot = states[libtorch::state_key(parameter)];
  first = !slot;
  if (first) {
    auto state = std::make_unique<SGDParamState>();
    state->momentum_buffer(torch::zeros_like(parameter, at::MemoryFormat::Preserve));
    slot = std::move(state);
  }
  return static_cast<SGDParamState&>(*slot).momentum_buffer();
}

}  // namespace

torch::Tensor SGD::step(LossClosure closure) {
  torch::Tensor loss = optim::loss_of(closure);
  const auto handles = [&](const torch::Tensor& parameter, const Gradient& gradient, const SGDOptions& options) {
    const SGDParamState* state = options.momentum() == 0 ? nullptr : optim::find<SGDParamState>(state_, parameter);
    return gradient.fits(parameter) && (state == nullptr || optim::fit(parameter, state->momentum_buffer()));
  };
  if (!optim::for_all<SGDOptions>(param_groups_, handles)) {
    optim::average_all(param_groups_);
    torch::optim::SGD::step();
    optim::for_all<SGDOptions>(param_groups_, [](const torch::Tensor& parameter, const Gradient&, const SGDOptions&) {
      parameter.unsafeGetTensorImpl()->bump_version();  // libtorch's SGD does not
      return true;
    });
    return loss;
  }
  const torch::NoGradGuard no_grad;
  const auto update = [&](const torch::Tensor& parameter, const Gradient& gradient, const SGDOptions& options) {
    bool first = false;
    torch::Tensor buffer;
    if (options.momentum() != 0) buffer = momentum_of(parameter, state_, first);
    optim::run(parameter, gradient,
               optim::SgdUpdate{
                   .parameter = parameter.data_ptr<float>(),
                   .gradient = gradient.data(),
                   .second = gradient.second(),
                   .buffer = buffer.defined() ? buffer.data_ptr<float>() : nullptr,
                   .momentum = static_cast<float>(options.momentum()),
                   .rest = first ? 1 : static_cast<float>(1 - options.dampening()),
                   .minus_rate = static_cast<float>(-options.lr()),
                   .decay = static_cast<float>(options.weight_decay()),
                   .nesterov = options.nesterov(),
               });
    if (buffer.defined()) buffer.unsafeGetTensorImpl()->bump_version();
    return true;
  };
  optim::for_all<SGDOptions>(param_groups_, update);
  return loss;
}

}  // namespace lockstep
