// DdpOptions::deferred: backward returns while buckets are under way, and finish() waits for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/data_parallel.h"
#include "lockstep/error.h"
#include "lockstep/tensor.h"
#include "nets.h"

namespace lockstep {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

DdpOptions deferred(DdpOptions options = small_buckets()) {
  options.deferred = true;
  return options;
}

TEST(Deferred, GivesTheOrdinaryOnesBits) {
  const Data data = draw(60);
  for (const bool flat : {false, true})
    thread_world(3, [&](Communicator& comm) {
      DdpOptions ordinary_options = small_buckets();
      ordinary_options.flat = flat;
      DistributedDataParallel later(seeded<NetImpl>(1), comm, deferred(ordinary_options));
      DistributedDataParallel ordinary(seeded<NetImpl>(1), comm, ordinary_options);
      const Data mine = data.share(comm);
      for (int step = 0; step < 4; ++step) {
        mse(ordinary.forward(mine.x), mine.y).backward();
        mse(later.forward(mine.x), mine.y).backward();
        later.finish();
        const auto want = ordinary.module().parameters();
        const auto got = later.module().parameters();
        for (std::size_t i = 0; i < want.size(); ++i)  // added up over the steps
          EXPECT_TRUE(torch::equal(got[i].grad(), want[i].grad())) << "step " << step << ", parameter " << i;
        EXPECT_GT(later.statistics().buckets.size(), 1U);
        EXPECT_GT(later.statistics().communication, 0);
      }
    });
}

TEST(Deferred, TrainsAsASingleProcess) {
  const Data data = draw(60);
  const auto want = trained_alone(data, 10);
  thread_world(3, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DistributedDataParallel ddp(net, comm, deferred());
    const auto optimizer = sgd()(ddp.parameters());
    const Data mine = data.share(comm);
    for (int step = 0; step < 10; ++step) {
      optimizer->zero_grad();
      {
        const auto guard = ddp.no_sync();
        (mse(ddp.forward(mine.rows(0, 10).x), mine.rows(0, 10).y) / 2).backward();
        ddp.finish();  // nothing is under way
      }
      (mse(ddp.forward(mine.rows(10, 20).x), mine.rows(10, 20).y) / 2).backward();
      ddp.finish();
      optimizer->step();
    }
    EXPECT_TRUE(close(copies(*net), want));
    EXPECT_TRUE(same_everywhere(comm, *net));
  });
}

// Rank 0's backward comes back while rank 1 has not begun its own, the last bucket included.
TEST(Deferred, BackwardDoesNotWaitForTheOthers) {
  const Data data = draw(20);
  std::atomic<bool> back = false;
  bool in_time = false;
  thread_world(2, [&](Communicator& comm) {
    DistributedDataParallel ddp(seeded<NetImpl>(1), comm, deferred());
    const torch::Tensor loss = mse(ddp.forward(data.x), data.y);
    if (comm.rank() == 1) {
      const Deadline by = Deadline::in(10s);
      while (!back && !by.passed()) std::this_thread::sleep_for(1ms);
      in_time = back;
    }
    loss.backward();
    if (comm.rank() == 0) back = true;
    ddp.finish();
  });
  EXPECT_TRUE(in_time);
}

TEST(Deferred, FinishWithoutABackwardOrTwiceIsNothing) {
  const Data data = draw(20);
  thread_world(2, [&](Communicator& comm) {
    DistributedDataParallel ddp(seeded<NetImpl>(1), comm, deferred());
    ddp.finish();
    mse(ddp.forward(data.x), data.y).backward();
    ddp.finish();
    const torch::Tensor once = ddp->first->weight.grad().clone();
    const auto traffic = ddp.communicator().traffic();
    ddp.finish();
    EXPECT_TRUE(torch::equal(ddp->first->weight.grad(), once));
    EXPECT_EQ(ddp.communicator().traffic().messages, traffic.messages);
    DistributedDataParallel ordinary(seeded<NetImpl>(1), comm, small_buckets());
    ordinary.finish();
    mse(ordinary.forward(data.x), data.y).backward();
    ordinary.finish();
    EXPECT_TRUE(torch::equal(ordinary->first->weight.grad(), once));
  });
}

TEST(Deferred, AForwardBeforeFinishIsNamedAndHarmless) {
  const Data data = draw(20);
  thread_world(2, [&](Communicator& comm) {
    DistributedDataParallel ddp(seeded<NetImpl>(1), comm, deferred());
    mse(ddp.forward(data.x), data.y).backward();
    EXPECT_THAT([&] { ddp.forward(data.x); },
                ThrowsMessage<UsageError>(AllOf(HasSubstr("still under way"), HasSubstr("try: finish()"))));
    ddp.finish();
    mse(ddp.forward(data.x), data.y).backward();
    ddp.finish();
  });
}

TEST(Deferred, ABackwardBeforeFinishIsNamedOnAllRanks) {
  const Data data = draw(20);
  for (const bool inside_no_sync : {false, true}) {
    const std::string text = error_of(2, [&](Communicator& comm) {
      DistributedDataParallel ddp(seeded<NetImpl>(1), comm, deferred());
      const torch::Tensor first = mse(ddp.forward(data.x), data.y);
      const torch::Tensor second = mse(ddp.forward(data.x), data.y);
      first.backward();
      std::optional<NoSync> guard;
      if (inside_no_sync) guard.emplace(ddp.no_sync());
      second.backward();
    });
    EXPECT_THAT(text, HasSubstr("a backward while the last one's buckets are under way; try: finish() before it"));
  }
}

TEST(Deferred, NotWithSharded) {
  EXPECT_THAT(error_of(2,
                       [](Communicator& comm) {
                         DdpOptions options = deferred();
                         options.sharded = true;
                         DistributedDataParallel ddp(seeded<NetImpl>(1), comm, options);
                       }),
              HasSubstr("sharded and deferred"));
}

// As in unused_test.cpp: b is used by rank 0 only, c by nobody.
TEST(Deferred, UnusedParametersAndAStaticGraph) {
  const Data data = draw(20);
  const auto used = seeded<BranchesImpl>(3);
  mse(used->forward(data.x, true), data.y).backward();
  for (const bool static_graph : {false, true})
    thread_world(3, [&](Communicator& comm) {
      const auto net = seeded<BranchesImpl>(3);
      DdpOptions options = deferred();
      options.allow_unused = !static_graph;
      options.static_graph = static_graph;
      DistributedDataParallel ddp(net, comm, options);
      const torch::Tensor odd = torch::full_like(net->c->weight, 0.1F);
      net->c->weight.mutable_grad() = odd.clone();
      for (int step = 0; step < 3; ++step) {
        for (const torch::Tensor& p : {net->a->weight, net->a->bias, net->b->weight, net->b->bias})
          if (p.grad().defined()) p.grad().zero_();
        mse(ddp.forward(data.x, comm.rank() == 0), data.y).backward();
        ddp.finish();
        EXPECT_TRUE(close(net->b->weight.grad() * 3, used->b->weight.grad()));
        EXPECT_TRUE(torch::equal(net->c->weight.grad(), odd)) << net->c->weight.grad();
        EXPECT_FALSE(net->c->bias.grad().defined());
      }
    });
}

TEST(Deferred, AnUnusedParameterIsStillNamed) {
  const Data data = draw(20);
  const std::string text = error_of(2, [&](Communicator& comm) {
    DistributedDataParallel ddp(seeded<BranchesImpl>(3), comm, deferred());
    mse(ddp.forward(data.x, true), data.y).backward();
    ddp.finish();
  });
  EXPECT_THAT(text, HasSubstr("no gradient in this backward for c.weight, c.bias"));
}

}  // namespace
}  // namespace lockstep
