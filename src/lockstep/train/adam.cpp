#include "lockstep/train/adam.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "lockstep/libtorch/versions.h"
#include "lockstep/train/adam_kernel.h"

namespace lockstep::train {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamParamState;

constexpr std::int64_t kGrain = 32768;  // fewest elements that are worth a thread

void run(const AdamPiece& piece) {
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (wide) return adam_avx2(piece);
#endif
  adam_baseline(piece);
}

// True if one loop can walk over all four arrays, or if there is no gradient and so nothing to do.
bool is_plain(const torch::Tensor& parameter) {
  const torch::Tensor& gradient = parameter.grad();
  return !gradient.defined() ||
         (parameter.scalar_type() == at::kFloat && gradient.scalar_type() == at::kFloat && parameter.is_cpu() &&
          gradient.is_cpu() && parameter.layout() == at::kStrided && gradient.layout() == at::kStrided &&
          parameter.is_non_overlapping_and_dense() && gradient.strides() == parameter.strides());
}

void update(const torch::Tensor& parameter, AdamParamState& state, const AdamOptions& options) {
  const auto [beta1, beta2] = options.betas();
  state.step(state.step() + 1);
  const auto step = static_cast<double>(state.step());
  const double correction1 = 1 - std::pow(beta1, step);
  const double correction2 = 1 - std::pow(beta2, step);
  AdamPiece all{.parameter = parameter.data_ptr<float>(),
                .gradient = parameter.grad().data_ptr<float>(),
                .average = state.exp_avg().data_ptr<float>(),
                .square = state.exp_avg_sq().data_ptr<float>(),
                .count = static_cast<std::size_t>(parameter.numel()),
                .beta1 = static_cast<float>(beta1),
                .rest1 = static_cast<float>(1 - beta1),
                .beta2 = static_cast<float>(beta2),
                .rest2 = static_cast<float>(1 - beta2),
                .root = static_cast<float>(std::sqrt(correction2)),
                .epsilon = static_cast<float>(options.eps()),
                .minus_rate = static_cast<float>(-(options.lr() / correction1)),
                .decay = static_cast<float>(options.weight_decay())};
  at::parallel_for(0, parameter.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    AdamPiece piece = all;
    piece.parameter += begin;
    piece.gradient += begin;
    piece.average += begin;
    piece.square += begin;
    piece.count = static_cast<std::size_t>(end - begin);
    run(piece);
  });
  for (const torch::Tensor& changed : {parameter, state.exp_avg(), state.exp_avg_sq()})
    changed.unsafeGetTensorImpl()->bump_version();
}

}  // namespace

torch::Tensor Adam::step(LossClosure closure) {
  for (const auto& group : param_groups_) {
    const auto& options = static_cast<const AdamOptions&>(group.options());
    if (options.amsgrad() || !std::all_of(group.params().begin(), group.params().end(), is_plain))
      return torch::optim::Adam::step(std::move(closure));
  }
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  for (const auto& group : param_groups_)
    for (const torch::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      auto& slot = state_[libtorch::state_key(parameter)];
      if (!slot) {
        auto state = std::make_unique<AdamParamState>();
        state->step(0);
        state->exp_avg(torch::zeros_like(parameter, at::MemoryFormat::Preserve));
        state->exp_avg_sq(torch::zeros_like(parameter, at::MemoryFormat::Preserve));
        slot = std::move(state);
      }
      update(parameter, static_cast<AdamParamState&>(*slot), static_cast<const AdamOptions&>(group.options()));
    }
  return loss;
}

}  // namespace lockstep::train
