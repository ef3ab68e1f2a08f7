// DdpOptions::fused_update: the optimizer averages the gradients. The same training without it is the oracle, to the
// bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lockstep/optimizer.h"
#include "nets.h"

namespace lockstep::fused {  // the names are not those of the other tests
namespace {

using namespace test;
using testing::HasSubstr;

// Wide enough that a rank's part of a weight has more than one tile, and no whole number of them.
constexpr std::int64_t kWide = 99;
constexpr int kSteps = 5;

DdpOptions options_for(bool fused, bool small = false) {
  DdpOptions options = small ? small_buckets() : DdpOptions();
  options.sharded = true;
  options.fused_update = fused;
  return options;
}

MakeOptimizer adam(double decay = 0) { return with<Adam>(torch::optim::AdamOptions(0.01).weight_decay(decay)); }

using Ddp = DistributedDataParallel<NetImpl>;
// Makes one step with this rank's share of the batch.
using Step = std::function<void(Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine)>;

void plain_step(Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine) {
  optimizer.zero_grad();
  mse(ddp.forward(mine.x), mine.y).backward();
  optimizer.step();
}

std::vector<torch::Tensor> trained(int ranks, const DdpOptions& options, const MakeOptimizer& make,
                                   const Step& step = plain_step) {
  const Data data = draw(12, 7, kWide);
  std::vector<torch::Tensor> weights;
  thread_world(ranks, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1, kWide);
    Ddp ddp(net, comm, options);
    const auto optimizer = make(ddp.parameters());
    const Data mine = data.share(comm);
    for (int i = 0; i < kSteps; ++i) step(ddp, *optimizer, mine);
    ddp.sync();
    EXPECT_TRUE(same_everywhere(comm, *net));
    if (comm.rank() == 0) weights = copies(*net);
  });
  return weights;
}

// The weights with and without fused_update are the same to the bit.
void expect_same(int ranks, const MakeOptimizer& make, const Step& step = plain_step, DdpOptions options = {}) {
  options.sharded = true;
  const auto want = trained(ranks, options, make, step);
  options.fused_update = true;
  EXPECT_EQ(distance(trained(ranks, options, make, step), want), 0);
}

TEST(Fused, TheBitsAreThoseOfTheUnfusedStep) {
  const MakeOptimizer optimizers[] = {
      adam(), adam(0.1), with<AdamW>(torch::optim::AdamWOptions(0.01)), with<SGD>(torch::optim::SGDOptions(0.1)),
      with<SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01))};
  for (const int ranks : {1, 2, 3, 4})
    for (std::size_t i = 0; i < std::size(optimizers); ++i) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, optimizer " << i);
      expect_same(ranks, optimizers[i]);
      expect_same(ranks, optimizers[i], plain_step, options_for(true, true));
    }
}

TEST(Fused, TheStepIsThatOfOneProcess) {
  const Data data = draw(12, 7, kWide);
  const auto net = seeded<NetImpl>(1, kWide);
  const auto optimizer = adam()(net->parameters());
  for (int i = 0; i < kSteps; ++i) {
    optimizer->zero_grad();
    mse(net->forward(data.x), data.y).backward();
    optimizer->step();
  }
  EXPECT_TRUE(close(trained(3, options_for(true), adam()), copies(*net)));
}

TEST(Fused, GradientsAreMadeOnlyWhenAskedFor) {
  const Data data = draw(12, 7, kWide);
  thread_world(3, [&](Communicator& comm) {
    const Data mine = data.share(comm);
    Ddp usual(seeded<NetImpl>(1, kWide), comm, options_for(false));
    Ddp fused(seeded<NetImpl>(1, kWide), comm, options_for(true));
    EXPECT_THAT(fused.layout(), HasSubstr("averaged by the optimizer"));
    const auto optimizer = adam()(fused.parameters());
    mse(usual.forward(mine.x), mine.y).backward();
    for (int step = 0; step < 2; ++step) {
      mse(fused.forward(mine.x), mine.y).backward();
      for (const torch::Tensor& block : fused.parameters()) EXPECT_FALSE(block.grad().defined());
      EXPECT_EQ(fused.statistics().communication, 0);
      if (step == 0) optimizer->step();
    }
    for (torch::Tensor& parameter : fused->parameters()) EXPECT_FALSE(parameter.grad().defined());
    fused.average_gradients();
    for (const torch::Tensor& block : fused.parameters()) EXPECT_TRUE(block.grad().defined());
    optimizer->step();
    fused.sync();

    Ddp again(seeded<NetImpl>(1, kWide), comm, options_for(true));
    mse(again.forward(mine.x), mine.y).backward();
    again.average_gradients();
    again.average_gradients();
    const auto want = usual.parameters(), got = again.parameters();
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(torch::equal(got[i].grad(), want[i].grad()));
  });
}

TEST(Fused, AveragedClippedAndAccumulatedGradientsAreUsedAsTheyAre) {
  const Step halves = [](Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine) {
    optimizer.zero_grad();
    ddp.average_gradients();  // there are none
    mse(ddp.forward(mine.x), mine.y).backward();
    ddp.average_gradients();
    for (const torch::Tensor& block : ddp.parameters()) block.grad().mul_(0.5);
    optimizer.step();
  };
  const Step clips = [](Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine) {
    optimizer.zero_grad();
    mse(ddp.forward(mine.x), mine.y).backward();
    EXPECT_GT(ddp.clip_grad_norm(0.1), 0.1);
    optimizer.step();
  };
  const Step accumulates = [](Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine) {
    optimizer.zero_grad();
    {
      const auto guard = ddp.no_sync();
      mse(ddp.forward(mine.x), mine.y).backward();
    }
    mse(ddp.forward(mine.x * 2), mine.y).backward();
    optimizer.step();
  };
  const Step drops = [](Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine) {
    mse(ddp.forward(mine.x * 3), mine.y).backward();
    ddp.average_gradients();
    optimizer.zero_grad();  // leaves this step out
    plain_step(ddp, optimizer, mine);
  };
  for (const Step& step : {halves, clips, accumulates, drops}) expect_same(2, adam(), step);
}

TEST(Fused, WhatLibtorchsClassStepsIsAveragedBefore) {
  expect_same(2, with<Adam>(torch::optim::AdamOptions(0.01).amsgrad(true)));
}

TEST(Fused, AParameterThatARankDoesNotUse) {
  DdpOptions options = options_for(true, true);
  options.allow_unused = true;
  const Step step = [](Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine) {
    const bool short_cut = ddp.communicator().rank() == 1;
    optimizer.zero_grad();
    torch::Tensor output = ddp.forward(mine.x);
    if (short_cut) output = ddp->last->forward(mine.x);
    mse(output, mine.y).backward();
    optimizer.step();
  };
  expect_same(2, adam(), step, options);
}

// A rank's optimizer reads the others' gradients. Nobody may write the next ones before it has.
TEST(Fused, GradientsStayUntilTheLastRankHasMadeItsStep) {
  using namespace std::chrono_literals;
  const Step late = [](Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine) {
    optimizer.zero_grad();
    const torch::Tensor first = mse(ddp.forward(mine.x), mine.y);
    const torch::Tensor second = mse(ddp.forward(mine.x * 2), mine.y);
    first.backward();
    if (ddp.communicator().rank() == 1) std::this_thread::sleep_for(30ms);
    optimizer.step();
    second.backward();  // there was no forward in between
    if (ddp.communicator().rank() == 0) std::this_thread::sleep_for(30ms);
    optimizer.step();
  };
  expect_same(2, adam(), late);
}

// On one rank, an allocation that is no gradient gets a place, and keeps it beyond backward.
TEST(Fused, GradientsThatTheOtherRanksCannotSeeAreAveragedInBackward) {
  const std::size_t bytes = kWide * kWide * sizeof(float);
  void* raw = nullptr;
  int moved = 0;
  const auto run = [&](bool fused) {
    int at = 0;
    const Step step = [&](Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine) {
      const bool is_first = ddp.communicator().rank() == 0;
      const int now = is_first ? at++ : 0;
      if (is_first && now == 0)
        ddp->last->weight.register_hook([&](const torch::Tensor& gradient) {
          if (at == 3) raw = c10::GetAllocator(at::kCPU)->raw_allocate(bytes);
          return gradient;
        });
      plain_step(ddp, optimizer, mine);
      if (is_first && fused && ddp.parameters().front().grad().defined()) ++moved;
    };
    const auto weights = trained(2, options_for(fused), adam(), step);
    c10::GetAllocator(at::kCPU)->raw_deallocate(raw);
    return weights;
  };
  const auto want = run(false);
  EXPECT_EQ(distance(run(true), want), 0);
  EXPECT_EQ(moved, kSteps - 2);  // from the third step on
}

TEST(Fused, AnOptimizerThatFindsNoGradientsIsReported) {
  const auto text = [](const MakeOptimizer& make) {
    return error_of(2, [&](Communicator& comm) {
      const Data data = draw(12, 7, kWide);
      Ddp ddp(seeded<NetImpl>(1, kWide), comm, options_for(true));
      const auto optimizer = make(ddp.parameters());
      for (int step = 0; step < 2; ++step) plain_step(ddp, *optimizer, data);
    });
  };
  EXPECT_THAT(text(with<torch::optim::Adam>(torch::optim::AdamOptions(0.01))),
              HasSubstr("with fused_update, nobody has used the first one's gradients"));
  const MakeOptimizer of_some = [](std::vector<torch::Tensor> blocks) {
    blocks.pop_back();
    return adam()(std::move(blocks));
  };
  EXPECT_THAT(text(of_some), HasSubstr("of all of ddp.parameters()"));
}

TEST(Fused, AveragingWhenThereIsNothingToAverageChangesNothing) {
  const Step logs = [](Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine) {
    plain_step(ddp, optimizer, mine);
    ddp.average_gradients();
  };
  const Step forgets = [](Ddp& ddp, torch::optim::Optimizer& optimizer, const Data& mine) {
    {
      const auto guard = ddp.no_sync();
      (100 * mse(ddp.forward(mine.x), mine.y)).backward();
    }
    optimizer.zero_grad();
    ddp.average_gradients();
    plain_step(ddp, optimizer, mine);
  };
  for (const Step& step : {logs, forgets}) expect_same(2, adam(), step);
}

TEST(Fused, AnOptimizerMayOutliveTheModelsDdp) {
  const Data data = draw(12, 7, kWide);
  const auto run = [&](bool fused) {
    std::vector<torch::Tensor> weights;
    thread_world(2, [&](Communicator& comm) {
      std::unique_ptr<torch::optim::Optimizer> optimizer;
      std::vector<torch::Tensor> blocks;
      {
        Ddp ddp(seeded<NetImpl>(1, kWide), comm, options_for(fused));
        blocks = ddp.parameters();
        optimizer = adam()(blocks);
        const Data mine = data.share(comm);
        mse(ddp.forward(mine.x), mine.y).backward();
      }
      optimizer->step();
      if (comm.rank() == 0)
        for (const torch::Tensor& block : blocks) weights.push_back(block.detach().clone());
    });
    return weights;
  };
  EXPECT_EQ(distance(run(true), run(false)), 0);
}

// The ring sums in another order than the optimizer would.
TEST(Fused, WithAnotherAlgorithmGradientsAreAveragedAfterBackward) {
  const Data data = draw(12, 7, kWide);
  comm::Options ring;
  ring.algorithm = Algorithm::ring;
  thread_world(
      3,
      [&](Communicator& comm) {
        Ddp ddp(seeded<NetImpl>(1, kWide), comm, options_for(true));
        EXPECT_THAT(ddp.layout(), HasSubstr("not the algorithm direct"));
        const Data mine = data.share(comm);
        mse(ddp.forward(mine.x), mine.y).backward();
        for (const torch::Tensor& block : ddp.parameters()) EXPECT_TRUE(block.grad().defined());
      },
      {}, ring);
}

TEST(Fused, OptionsThatDoNotFit) {
  DdpOptions options;
  options.fused_update = true;
  EXPECT_THAT(error_of(1, [&](Communicator& comm) { Ddp ddp(seeded<NetImpl>(1), comm, options); }),
              HasSubstr("fused_update without sharded"));
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    net->to(at::kDouble);
    Ddp ddp(net, comm, options_for(true));
    EXPECT_THAT(ddp.layout(), HasSubstr("not all are float32"));
    const Data data = draw(12);
    mse(ddp.forward(data.x.to(at::kDouble)), data.y).backward();
    for (const torch::Tensor& block : ddp.parameters()) EXPECT_TRUE(block.grad().defined());
  });
}

}  // namespace
}  // namespace lockstep::fused
