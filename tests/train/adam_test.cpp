#include "lockstep/train/adam.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <sstream>

namespace lockstep::train {
namespace {

using torch::optim::AdamOptions;

constexpr double kRounding = 2e-6;  // 30 steps of 6e-8
constexpr double kOfAStep = 1e-3;

struct Pair {
  std::vector<torch::Tensor> mine, theirs;

  void add(const torch::Tensor& value) {
    mine.push_back(value.clone().set_requires_grad(true));
    theirs.push_back(value.clone().set_requires_grad(true));
  }
  void draw_gradients(double scale) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      torch::Tensor gradient = torch::randn_like(mine[i]) * scale;
      mine[i].mutable_grad() = gradient;
      theirs[i].mutable_grad() = gradient.clone();
    }
  }
  // Not the same bits: libtorch's operations on whole tensors fuse a product and a sum or not, depending on its
  // version, the processor and the place in the tensor. That is one rounding of 6e-8 in each of the steps. And where a
  // gradient and its decay nearly cancel, Adam divides the rounding of that sum by its own size: the step of such an
  // element, of which there is one in ten thousand, may be off by a part of the learning rate.
  void expect_close(const std::string& where, double lr) const {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (mine[i].numel() == 0) continue;
      const torch::Tensor off = (mine[i] - theirs[i]).detach().abs();
      const double rounding = kRounding * (theirs[i].detach().abs().max().item<double>() + lr);
      ASSERT_LE(off.max().item<double>(), rounding + kOfAStep * lr) << where << ": " << i;
      ASSERT_LE(off.median().item<double>(), rounding) << where << ": " << i;
    }
  }
};

Pair some() {
  torch::manual_seed(1);
  Pair pair;
  for (const std::int64_t n : {1, 7, 8, 31, 1000, 100'003}) pair.add(torch::randn({n}));
  pair.add(torch::randn({17, 33}).t());
  pair.add(torch::randn({0}));
  return pair;
}

TEST(Adam, MakesLibtorchsSteps) {
  for (const AdamOptions& options :
       {AdamOptions(1e-3), AdamOptions(0.1).weight_decay(0.01), AdamOptions(1e-2).betas({0.8, 0.9}).eps(1e-4)})
    for (const double scale : {1.0, 1e-4, 1e-21, 1e4}) {  // at 1e-21 squares are denormal
      Pair pair = some();
      Adam mine(pair.mine, options);
      torch::optim::Adam theirs(pair.theirs, options);
      for (int step = 0; step < 30; ++step) {
        pair.draw_gradients(scale);
        mine.step();
        theirs.step();
        pair.expect_close(fmt::format("scale {} step {}", scale, step), options.lr());
        if (HasFatalFailure()) return;
      }
    }
}

TEST(Adam, LeavesWhatItDoesNotHandleToLibtorch) {
  Pair pair;
  torch::manual_seed(1);
  pair.add(torch::randn({100}, torch::kDouble));
  pair.add(torch::randn({100}));
  for (const bool amsgrad : {false, true}) {
    Adam mine(pair.mine, AdamOptions(1e-2).amsgrad(amsgrad));
    torch::optim::Adam theirs(pair.theirs, AdamOptions(1e-2).amsgrad(amsgrad));
    for (int step = 0; step < 5; ++step) {
      pair.draw_gradients(1);
      pair.mine[1].mutable_grad().reset();  // one without a gradient
      pair.theirs[1].mutable_grad().reset();
      mine.step();
      theirs.step();
      pair.expect_close("other types", 1e-2);
    }
  }
}

TEST(Adam, ItsStateIsLibtorchs) {
  Pair pair = some();
  Adam mine(pair.mine, AdamOptions(1e-2));
  torch::optim::Adam theirs(pair.theirs, AdamOptions(1e-2));
  pair.draw_gradients(1);
  mine.step();
  theirs.step();
  std::stringstream saved;
  torch::save(mine, saved);
  torch::optim::Adam loaded(pair.mine, AdamOptions(1e-2));  // goes on where ours was
  torch::load(loaded, saved);
  pair.draw_gradients(1);
  loaded.step();
  theirs.step();
  pair.expect_close("after loading", 1e-2);
}

TEST(Adam, CountsVersionsUpAndRunsAClosure) {
  torch::Tensor weight = torch::ones({3}, torch::requires_grad());
  Adam adam({weight}, AdamOptions(1e-2));
  const auto before = weight._version();
  const torch::Tensor loss = adam.step([&] {
    torch::Tensor value = weight.sum();
    value.backward();
    return value;
  });
  EXPECT_EQ(loss.item<float>(), 3);
  EXPECT_GT(weight._version(), before);
  EXPECT_LT(weight[0].item<float>(), 1);
}

}  // namespace
}  // namespace lockstep::train
