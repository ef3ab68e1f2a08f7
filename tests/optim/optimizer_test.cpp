#include "lockstep/optimizer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "kinds.h"
#include "lockstep/optim/one_pass.h"

namespace lockstep::test {
namespace {

template <typename Kind>
class Optimizers : public ::testing::Test {};
TYPED_TEST_SUITE(Optimizers, Kinds, Names);

// libtorch's number of threads, for the length of a scope.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

TYPED_TEST(Optimizers, MakesLibtorchsSteps) {
  int which = 0;
  for (const auto& options : TypeParam::all_options()) {
    for (const double scale : TypeParam::scales()) {
      Pair pair = some();
      typename TypeParam::Mine mine(pair.mine, options);
      typename TypeParam::Theirs theirs(pair.theirs, options);
      for (int step = 0; step < kSteps; ++step) {
        pair.draw_gradients(scale);
        mine.step();
        theirs.step();
        TypeParam::expect_close(pair, fmt::format("options {} scale {} step {}", which, scale, step), options.lr());
        if (this->HasFatalFailure()) return;
      }
    }
    ++which;
  }
}

// The mean of what lies in the parts of some ranks, with one thread and with several.
TYPED_TEST(Optimizers, AveragesWhatHasNotBeenAveraged) {
  for (const auto& [ranks, threads] : {std::pair(2, 1), std::pair(2, 3), std::pair(3, 1), std::pair(5, 3)})
    for (const std::int64_t count : {1, 2047, 2048, 2049, 100'003})
      for (const auto& options : TypeParam::all_options()) {
        const Threads some_threads(threads);
        torch::manual_seed(count);
        Pair pair;
        pair.add(torch::randn({count}));
        const torch::Tensor place = torch::zeros({count});
        std::vector<torch::Tensor> parts(static_cast<std::size_t>(ranks));
        for (torch::Tensor& part : parts) part = torch::randn({count});
        std::vector<const std::byte*> where;
        for (const torch::Tensor& part : parts) where.push_back(static_cast<const std::byte*>(part.data_ptr()));
        optim::Unaveraged unaveraged(pair.mine[0], place, where);
        typename TypeParam::Mine mine(pair.mine, options);
        typename TypeParam::Mine theirs(pair.theirs, options);
        mine.step();  // nothing has come
        for (int step = 0; step < 3; ++step) {
          for (torch::Tensor& part : parts) part.normal_();
          torch::Tensor sum = parts[0].clone();
          for (std::size_t i = 1; i < parts.size(); ++i) sum += parts[i];
          pair.theirs[0].mutable_grad() = sum / ranks;
          unaveraged.arrive();
          EXPECT_TRUE(unaveraged.is_pending());
          mine.step();
          EXPECT_FALSE(unaveraged.is_pending());
          mine.step();  // it was used
          theirs.step();
        }
        pair.expect_same(fmt::format("{} ranks, {} threads, {} elements", ranks, threads, count));
        EXPECT_EQ(place.abs().max().template item<float>(), 0);
      }
}

TYPED_TEST(Optimizers, GroupsHaveTheirOwnOptions) {
  using Options = typename TypeParam::Options;
  Pair pair = some();
  const auto groups = [](const std::vector<torch::Tensor>& parameters) {
    const auto half = parameters.begin() + 3;
    std::vector<torch::optim::OptimizerParamGroup> made;
    made.emplace_back(std::vector(parameters.begin(), half), std::make_unique<Options>(Options(0.1).weight_decay(0.3)));
    made.emplace_back(std::vector(half, parameters.end()), std::make_unique<Options>(Options(1e-3)));
    return made;
  };
  typename TypeParam::Mine mine(groups(pair.mine), TypeParam::with_state());
  typename TypeParam::Theirs theirs(groups(pair.theirs), TypeParam::with_state());
  for (int step = 0; step < kSteps; ++step) {
    pair.draw_gradients();
    mine.step();
    theirs.step();
    TypeParam::expect_close(pair, fmt::format("step {}", step), 0.1);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(Optimizers, ParametersWithoutGradientStay) {
  Pair pair = some();
  const torch::Tensor never = pair.mine[4].detach().clone();
  typename TypeParam::Mine mine(pair.mine, TypeParam::with_state());
  typename TypeParam::Theirs theirs(pair.theirs, TypeParam::with_state());
  for (int step = 0; step < kSteps; ++step) {
    pair.draw_gradients();
    pair.set_gradient(4, {});
    if (step % 3 == 0) pair.set_gradient(5, {});  // so its count of steps is another one
    mine.step();
    theirs.step();
    TypeParam::expect_close(pair, fmt::format("step {}", step), 1e-2);
    if (this->HasFatalFailure()) return;
  }
  EXPECT_TRUE(torch::equal(pair.mine[4], never));
  EXPECT_EQ(mine.state().size(), pair.mine.size() - 1);
  EXPECT_EQ(mine.state().count(libtorch::state_key(pair.mine[4])), 0U);
}

TYPED_TEST(Optimizers, RunsNoTensorOperation) {
  const Threads one(1);
  Pair pair = some();
  typename TypeParam::Mine mine(pair.mine, TypeParam::with_state());
  typename TypeParam::Theirs theirs(pair.theirs, TypeParam::with_state());
  pair.draw_gradients();
  mine.step();  // the first one makes the state
  theirs.step();
  EXPECT_EQ(operations_in([&] { mine.step(); }), 0);
  EXPECT_GE(operations_in([&] { theirs.step(); }), 3 * static_cast<int>(pair.theirs.size()));
}

// As an MLP's bias or a CNN's first layer gets it: the stride of a dimension with one element says nothing.
TYPED_TEST(Optimizers, StridesOfSingleElementsDoNotMatter) {
  Pair pair;
  torch::manual_seed(1);
  pair.add(torch::randn({8, 1, 5, 5}));
  typename TypeParam::Mine mine(pair.mine, TypeParam::with_state());
  typename TypeParam::Theirs theirs(pair.theirs, TypeParam::with_state());
  for (int step = 0; step < 5; ++step) {
    const torch::Tensor gradient = torch::randn({8, 1, 5, 5}).as_strided({8, 1, 5, 5}, {25, 1, 5, 1});
    pair.mine[0].mutable_grad() = gradient;
    pair.theirs[0].mutable_grad() = gradient;
    const int operations = operations_in([&] { mine.step(); });
    EXPECT_EQ(step > 0 ? operations : 0, 0);  // the first one makes the state
    theirs.step();
    TypeParam::expect_close(pair, fmt::format("step {}", step), 1e-2);
  }
}

TYPED_TEST(Optimizers, EachLoadsWhatTheOtherSaved) {
  const auto options = TypeParam::with_state();
  Pair pair = some();
  auto mine = std::make_unique<typename TypeParam::Mine>(pair.mine, options);
  auto theirs = std::make_unique<typename TypeParam::Theirs>(pair.theirs, options);
  const auto steps = [&](torch::optim::Optimizer& first, torch::optim::Optimizer& second, const char* where) {
    for (int step = 0; step < 5; ++step) {
      pair.draw_gradients();
      first.step();
      second.step();
      TypeParam::expect_close(pair, where, options.lr());
    }
    expect_close_states<TypeParam>(first, second, pair);
  };
  steps(*mine, *theirs, "at first");
  std::stringstream saved_by_mine, saved_by_theirs;
  torch::save(*mine, saved_by_mine);
  torch::save(*theirs, saved_by_theirs);
  // Other options than those in the file, so that they must come from there.
  typename TypeParam::Theirs from_mine(pair.mine, typename TypeParam::Options(0.5));
  typename TypeParam::Mine from_theirs(pair.theirs, typename TypeParam::Options(0.5));
  torch::load(from_mine, saved_by_mine);
  torch::load(from_theirs, saved_by_theirs);
  steps(from_mine, from_theirs, "after loading");
  std::stringstream again;
  torch::save(from_theirs, again);
  typename TypeParam::Mine ours_again(pair.theirs, typename TypeParam::Options(0.5));
  torch::load(ours_again, again);
  steps(from_mine, ours_again, "ours from ours");
}

TYPED_TEST(Optimizers, FollowsAScheduler) {
  Pair pair = some();
  typename TypeParam::Mine mine(pair.mine, TypeParam::with_state());
  typename TypeParam::Theirs theirs(pair.theirs, TypeParam::with_state());
  torch::optim::StepLR my_rate(mine, 2, 0.5), their_rate(theirs, 2, 0.5);
  for (int step = 0; step < 10; ++step) {
    pair.draw_gradients();
    mine.step();
    theirs.step();
    TypeParam::expect_close(pair, fmt::format("step {}", step), 1e-2);
    my_rate.step();
    their_rate.step();
  }
  const double rate = mine.param_groups()[0].options().get_lr();
  EXPECT_DOUBLE_EQ(rate, theirs.param_groups()[0].options().get_lr());
  EXPECT_LE(rate, 1e-2 / 16);
  const torch::Tensor before = pair.mine[5].detach().clone();
  mine.param_groups()[0].options().set_lr(0);
  mine.step();
  EXPECT_TRUE(torch::equal(pair.mine[5], before));
}

TYPED_TEST(Optimizers, CountsVersionsUp) {
  Pair pair = some();
  typename TypeParam::Mine mine(pair.mine, TypeParam::with_state());
  pair.draw_gradients();
  mine.step();
  const torch::Tensor state = TypeParam::tensors(state_of<TypeParam>(mine, pair.mine[5]))[0];
  const auto weights = pair.mine[5]._version(), states = state._version();
  const auto gradients = pair.mine[5].grad()._version();
  mine.step();
  EXPECT_GT(pair.mine[5]._version(), weights);
  EXPECT_GT(state._version(), states);
  EXPECT_EQ(pair.mine[5].grad()._version(), gradients);
}

// So autograd notices that a weight has changed between forward and backward.
TYPED_TEST(Optimizers, AStepBetweenForwardAndBackwardIsAnError) {
  torch::Tensor weight = torch::ones({3}, torch::requires_grad());
  typename TypeParam::Mine mine({weight}, typename TypeParam::Options(0.1));
  const torch::Tensor loss = (weight * weight).sum();
  weight.mutable_grad() = torch::ones({3});
  mine.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TYPED_TEST(Optimizers, RunsAClosureOnceAndWithGradients) {
  for (const bool transposed : {false, true}) {  // the second one is for libtorch, as only the closure's end shows
    torch::Tensor weight = torch::ones({2, 2}, torch::requires_grad());
    typename TypeParam::Mine mine({weight}, typename TypeParam::Options(1e-2));
    int calls = 0;
    const torch::NoGradGuard no_grad;
    const torch::Tensor loss = mine.step([&] {
      ++calls;
      const torch::Tensor value = weight.sum();
      value.backward();
      if (transposed) weight.mutable_grad() = torch::tensor({{1.F, 2.F}, {-1.F, -2.F}}).t();
      return value;
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(loss.item<float>(), 4);
    EXPECT_LT(weight[0][0].item<float>(), 1);
    EXPECT_EQ(weight[0][1].item<float>() > 1, transposed);
  }
}

TYPED_TEST(Optimizers, ThreadsDoNotChangeTheResult) {
  std::vector<torch::Tensor> results;
  for (const int threads : {1, 3}) {
    const Threads some_threads(threads);
    torch::manual_seed(1);
    torch::Tensor weight = torch::randn({7, 40'009}, torch::requires_grad());
    typename TypeParam::Mine mine({weight}, TypeParam::with_state());
    for (int step = 0; step < 3; ++step) {
      weight.mutable_grad() = torch::randn_like(weight);
      mine.step();
    }
    results.push_back(weight.detach());
  }
  EXPECT_TRUE(torch::equal(results[0], results[1]));
}

TEST(InParts, EachElementIsInOnePartAndLargeTensorsUseAllThreads) {
  for (const int threads : {1, 3})
    for (const std::int64_t count : {0, 1, 4097, 32'768, 32'769, 1'000'003}) {
      const Threads some_threads(threads);
      std::vector<int> visits(static_cast<std::size_t>(count));
      std::mutex mutex;
      std::set<std::thread::id> seen;
      optim::in_parts(torch::empty({count}), [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) ++visits[i];
        const std::lock_guard lock(mutex);
        seen.insert(std::this_thread::get_id());
      });
      EXPECT_EQ(std::count(visits.begin(), visits.end(), 1), count);
      EXPECT_EQ(seen.size() > 1, threads > 1 && count > 32'768) << count;
      EXPECT_TRUE(count < 1'000'000 || seen.size() == static_cast<std::size_t>(threads)) << seen.size();
    }
}

}  // namespace
}  // namespace lockstep::test
