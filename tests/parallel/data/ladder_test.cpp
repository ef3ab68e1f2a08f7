// The lower rungs: by hand, naive, hooks. Each equals the one below it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/error.h"
#include "lockstep/gradients.h"
#include "lockstep/manual.h"
#include "lockstep/parallel/data/autograd.h"
#include "nets.h"

namespace lockstep {
namespace {

using namespace test;

TEST(Ladder, ManualKeepsTwoCopiesEqualToOneModel) {
  const Data data = draw(40);
  const auto a = seeded<NetImpl>(1);
  const auto b = seeded<NetImpl>(1);
  const auto optimizer_a = sgd()(a->parameters());
  const auto optimizer_b = sgd()(b->parameters());
  const Data first = data.rows(0, 20);
  const Data second = data.rows(20, 40);
  for (int step = 0; step < 8; ++step)
    manual_data_parallel_step({*a, *optimizer_a, [&] { return mse(a->forward(first.x), first.y); }},
                              {*b, *optimizer_b, [&] { return mse(b->forward(second.x), second.y); }});
  EXPECT_TRUE(close(copies(*a), trained_alone(data, 8)));
  EXPECT_EQ(distance(copies(*a), copies(*b)), 0);
}

TEST(Ladder, NaiveEqualsASingleProcess) {
  const Data data = draw(60);
  const auto want = trained_alone(data, 8);
  for (const int ranks : {1, 2, 3, 4, 5})
    thread_world(ranks, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      const auto optimizer = sgd()(net->parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 8; ++step)
        naive_data_parallel_step(net->parameters(), *optimizer, comm,
                                 [&] { return mse(net->forward(mine.x), mine.y); });
      EXPECT_TRUE(close(copies(*net), want));
      EXPECT_TRUE(same_everywhere(comm, *net));
    });
}

TEST(Ladder, HooksEqualASingleProcessAndComeLastLayerFirst) {
  const Data data = draw(60);
  const auto want = trained_alone(data, 8);
  for (const int ranks : {1, 2, 3})
    thread_world(ranks, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      HookTracker tracker;
      const auto hooks = register_ddp_hooks(*net, comm, &tracker);
      const auto optimizer = sgd()(net->parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 8; ++step) {
        optimizer->zero_grad();
        mse(net->forward(mine.x), mine.y).backward();
        optimizer->step();
      }
      EXPECT_TRUE(close(copies(*net), want));
      ASSERT_EQ(tracker.rows().size(), 6U);
      EXPECT_THAT(tracker.rows().front().parameter, testing::StartsWith("last."));
      EXPECT_THAT(tracker.rows().back().parameter, testing::StartsWith("first."));
      for (const auto& row : tracker.rows()) {
        EXPECT_GE(row.began, row.ready);
        EXPECT_GE(row.ended, row.began);
      }
      EXPECT_LE(tracker.overlapped(), tracker.communication());
      EXPECT_THAT(tracker.table(), testing::HasSubstr("first.weight"));
    });
}

TEST(Ladder, HooksAfterABackwardThatThrewSaySo) {
  thread_world(1, [](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    const auto hooks = register_ddp_hooks(*net, comm);
    const Data data = draw(4);
    torch::Tensor x = data.x.clone().requires_grad_(true);
    x.register_hook([](const torch::Tensor&) { throw std::runtime_error("on purpose"); });
    EXPECT_THROW(mse(net->forward(x), data.y).backward(), std::runtime_error);
    EXPECT_THROW(mse(net->forward(data.x), data.y).backward(), UsageError);
  });
}

TEST(Ladder, HooksAreGoneWhenTheyAreDestroyed) {
  thread_world(2, [](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    HookTracker tracker;
    { const auto hooks = register_ddp_hooks(*net, comm, &tracker); }
    const Data data = draw(4);
    mse(net->forward(data.x), data.y).backward();
    EXPECT_TRUE(tracker.rows().empty());
  });
}

TEST(Ladder, AHookThatIsGoneDoesNotRunInAGraphThatIsOlder) {
  torch::Tensor weight = torch::ones({1}, torch::requires_grad());
  int calls = 0;
  torch::Tensor loss;
  {
    parallel::GradientHooks hooks;
    hooks.add(
        weight, [&] { ++calls; }, [&] { ++calls; });
    loss = weight * 3;  // holds the node that the hooks are on
  }
  loss.backward();
  EXPECT_EQ(calls, 0);
}

// Why the hooks stand where they stand: one on the tensor sees the new part only, before it is added.
TEST(Ladder, AHookOnTheTensorRunsBeforeAccumulationAndMissesWhatWasThere) {
  torch::Tensor weight = torch::ones({1}, torch::requires_grad());
  double on_tensor = 0;
  double after_accumulation = 0;
  weight.register_hook([&](const torch::Tensor& gradient) { on_tensor = gradient.item<double>(); });
  parallel::GradientHooks hooks;
  hooks.add(weight, [&] { after_accumulation = weight.grad().item<double>(); });
  (weight * 3).backward();
  (weight * 4).backward();
  EXPECT_EQ(on_tensor, 4);
  EXPECT_EQ(after_accumulation, 7);
}

TEST(Ladder, TheEndOfBackwardComesAfterTheLastHookAndItsErrorsComeOut) {
  torch::Tensor weight = torch::ones({1}, torch::requires_grad());
  std::string order;
  parallel::GradientHooks hooks;
  hooks.add(
      weight,
      [&] {
        order += "after ";
        parallel::at_end_of_backward([&] {
          order += "end";
          throw std::runtime_error("thrown at the end");
        });
      },
      [&] { order += "before "; });
  EXPECT_THROW((weight * 2).backward(), std::runtime_error);
  EXPECT_EQ(order, "before after end");
}

}  // namespace
}  // namespace lockstep
