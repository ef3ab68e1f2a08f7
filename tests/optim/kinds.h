// The three optimizers beside libtorch's, for tests that run for each of them.
#pragma once

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/libtorch/versions.h"
#include "lockstep/optimizer.h"
#include "numerics.h"

namespace lockstep::test {

// libtorch's weights and ours do not have the same bits: libtorch's operations on whole tensors fuse a product and a
// sum or not, depending on its version, the processor and the place in the tensor. That is a rounding of 6e-8 in each
// step, in weights and in state. 50 of them are 3e-6 if all had the same sign, and 4e-7 with random signs.
inline constexpr int kSteps = 50;
inline constexpr double kRounding = 2e-6;
inline constexpr double kOfAStep = 1e-3;

// Parameters with the same values, for our optimizer and for libtorch's.
struct Pair {
  std::vector<torch::Tensor> mine, theirs;

  void add(const torch::Tensor& value) {
    mine.push_back(value.clone().set_requires_grad(true));
    theirs.push_back(value.clone().set_requires_grad(true));
  }
  void set_gradient(std::size_t i, const torch::Tensor& gradient) {
    mine[i].mutable_grad() = gradient.defined() ? gradient.clone() : gradient;
    theirs[i].mutable_grad() = gradient;
  }
  void draw_gradients(double scale = 1) {
    for (std::size_t i = 0; i < mine.size(); ++i) set_gradient(i, torch::randn_like(mine[i]) * scale);
  }
  // To the bit, as it must be where libtorch makes the step on both sides.
  void expect_same(const std::string& where) const {
    for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_TRUE(torch::equal(mine[i], theirs[i])) << where << ": " << i;
  }
};

inline Pair some() {
  torch::manual_seed(1);
  Pair pair;
  for (const std::int64_t n : {1, 7, 8, 31, 1000, 4097, 100'003}) pair.add(torch::randn({n}));
  pair.add(torch::randn({17, 33}).t());
  pair.add(torch::randn({8, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast));
  pair.add(torch::randn({}));
  pair.add(torch::randn({0}));
  return pair;
}

// Where a gradient and its decay nearly cancel, Adam divides the rounding of that sum by its own size: the step of such
// an element, of which there is one in ten thousand, may be off by a part of the learning rate.
inline void expect_close_adaptive(const Pair& pair, const std::string& where, double lr) {
  for (std::size_t i = 0; i < pair.mine.size(); ++i) {
    if (pair.mine[i].numel() == 0) continue;
    const torch::Tensor off = (pair.mine[i] - pair.theirs[i]).detach().abs();
    const double rounding = kRounding * (pair.theirs[i].detach().abs().max().item<double>() + lr);
    ASSERT_LE(off.max().item<double>(), rounding + kOfAStep * lr) << where << ": " << i;
    ASSERT_LE(off.median().item<double>(), rounding) << where << ": " << i;
  }
}

template <typename MineT, typename TheirsT, typename OptionsT, typename StateT>
struct AdamLike {
  using Mine = MineT;
  using Theirs = TheirsT;
  using Options = OptionsT;
  using State = StateT;
  static std::vector<Options> all_options() {
    return {Options(1e-3), Options(0.1).weight_decay(0), Options(0.1).weight_decay(0.01),
            Options(0.1).weight_decay(0.5), Options(1e-2).betas({0.8, 0.9}).eps(1e-4)};
  }
  static Options with_state() { return Options(1e-2); }
  static std::vector<double> scales() { return {1.0, 1e-4, 1e-21, 1e4}; }  // at 1e-21 squares are denormal
  static std::vector<torch::Tensor> tensors(const State& state) { return {state.exp_avg(), state.exp_avg_sq()}; }
  static void set_tensor(State& state, const torch::Tensor& value) { state.exp_avg(value); }
  static std::int64_t steps(const State& state) { return state.step(); }
  static void expect_close(const Pair& pair, const std::string& where, double lr) {
    expect_close_adaptive(pair, where, lr);
  }
};
using AdamKind = AdamLike<Adam, torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState>;
using AdamWKind = AdamLike<AdamW, torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState>;

struct SgdKind {
  using Mine = SGD;
  using Theirs = torch::optim::SGD;
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static std::vector<Options> all_options() {
    std::vector<Options> all;
    for (const double decay : {0.0, 0.1}) {
      const Options options = Options(0.05).weight_decay(decay);
      all.push_back(options);
      all.push_back(Options(options).momentum(0.9));
      all.push_back(Options(options).momentum(0.9).dampening(0.5));
      all.push_back(Options(options).momentum(0.9).nesterov(true));
    }
    return all;
  }
  static Options with_state() { return Options(1e-2).momentum(0.9); }
  static std::vector<double> scales() { return {1.0, 1e4}; }
  static std::vector<torch::Tensor> tensors(const State& state) { return {state.momentum_buffer()}; }
  static void set_tensor(State& state, const torch::Tensor& value) { state.momentum_buffer(value); }
  static std::int64_t steps(const State&) { return 0; }
  // Steps grow with the gradients, and a single weight can come back to zero: relative to the largest of all.
  static void expect_close(const Pair& pair, const std::string& where, double) {
    ASSERT_TRUE(close(pair.mine, pair.theirs, kRounding)) << where;
  }
};

template <typename Kind>
typename Kind::State& state_of(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  return static_cast<typename Kind::State&>(*optimizer.state().at(libtorch::state_key(parameter)));
}

template <typename Kind>
void expect_close_states(torch::optim::Optimizer& mine, torch::optim::Optimizer& theirs, const Pair& pair) {
  ASSERT_EQ(mine.state().size(), theirs.state().size());
  for (std::size_t i = 0; i < pair.mine.size(); ++i) {
    const auto& got = state_of<Kind>(mine, pair.mine[i]);
    const auto& want = state_of<Kind>(theirs, pair.theirs[i]);
    EXPECT_EQ(Kind::steps(got), Kind::steps(want)) << i;
    for (std::size_t k = 0; k < Kind::tensors(want).size(); ++k)
      EXPECT_TRUE(close(Kind::tensors(got)[k], Kind::tensors(want)[k], kRounding)) << i << " " << k;
  }
}

struct Names {
  template <typename Kind>
  static std::string GetName(int) {
    if (std::is_same_v<Kind, AdamKind>) return "Adam";
    return std::is_same_v<Kind, AdamWKind> ? "AdamW" : "SGD";
  }
};
using Kinds = ::testing::Types<AdamKind, AdamWKind, SgdKind>;

// Counts the tensor operations that libtorch runs in a call.
inline std::atomic<int> operations_seen{0};
template <typename Function>
int operations_in(const Function& function) {
  operations_seen = 0;
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        ++operations_seen;
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  function();
  at::removeCallback(handle);
  return operations_seen;
}

}  // namespace lockstep::test
