// Parameters that ranks do not use, or use in different orders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <limits>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/data_parallel.h"
#include "lockstep/error.h"
#include "lockstep/gradients.h"
#include "lockstep/parallel/data/autograd.h"
#include "lockstep/tensor.h"
#include "nets.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;

// Rank 1 adds the branches up the other way round, so its gradients come in another order.
TEST(Unused, RanksWhoseGradientsComeInDifferentOrdersAgree) {
  const Data data = draw(40);
  const auto forward = [](BranchesImpl& net, const torch::Tensor& x, bool reversed) {
    const auto deep = [&](torch::nn::Linear& one, int factor) { return torch::tanh(factor * one(x)).pow(2); };
    if (!reversed) return deep(net.a, 1) + deep(net.b, 2) + deep(net.c, 3);
    return deep(net.c, 3) + deep(net.b, 2) + deep(net.a, 1);
  };
  const auto alone = seeded<BranchesImpl>(3);
  mse(forward(*alone, data.x, false), data.y).backward();
  std::array<std::string, 2> first_ready;
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<BranchesImpl>(3);
    DdpOptions options;
    options.first_bucket_bytes = options.bucket_bytes = 1;  // a bucket each
    std::vector<std::size_t> order;
    parallel::GradientHooks watch;
    for (std::size_t i = 0; i < 6; ++i) watch.add(net->parameters()[i], [&order, i] { order.push_back(i); });
    DistributedDataParallel ddp(net, comm, options);
    const Data mine = data.share(comm);
    for (int step = 0; step < 3; ++step) {
      for (const torch::Tensor& p : net->parameters())
        if (p.grad().defined()) p.grad().zero_();
      order.clear();
      mse(forward(*net, mine.x, comm.rank() == 1), mine.y).backward();
      EXPECT_TRUE(close(gradients(*net), gradients(*alone))) << step;
    }
    first_ready[static_cast<std::size_t>(comm.rank())] = net->named_parameters().keys()[order.front()];
  });
  EXPECT_NE(first_ready[0], first_ready[1]) << "the orders do not differ: the test tests nothing";
}

TEST(Unused, AnUnusedParameterIsNamedWithItsRankOnAllRanks) {
  const Data data = draw(20);
  std::atomic<int> told = 0;
  error_of(3, [&](Communicator& comm) {
    const auto net = seeded<BranchesImpl>(3);
    for (const torch::Tensor& p : net->c->parameters()) torch::Tensor(p).requires_grad_(false);
    DistributedDataParallel ddp(net, comm, small_buckets());
    try {
      mse(ddp.forward(data.x, comm.rank() != 1), data.y).backward();
      comm.barrier();
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1: no gradient in this backward for b.weight, b.bias"));
      // Rank 1 is still here when the others hear of it: it told them, they did not see it go.
      const Deadline by = Deadline::in(10s);
      for (++told; told < 3 && !by.passed();) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(told, 3);
      throw;
    }
  });
  EXPECT_EQ(told, 3);
}

TEST(Unused, AllowedUnusedParametersCountAsZerosAndWhatNobodyUsedIsUntouched) {
  const Data data = draw(20);
  const auto used = seeded<BranchesImpl>(3);
  mse(used->forward(data.x, true), data.y).backward();
  for (const bool static_graph : {false, true})
    thread_world(3, [&](Communicator& comm) {
      const auto net = seeded<BranchesImpl>(3);
      DdpOptions options = small_buckets();
      options.allow_unused = !static_graph;
      options.static_graph = static_graph;
      DistributedDataParallel ddp(net, comm, options);
      // A value that three ranks' mean would not leave as it is.
      const torch::Tensor odd = torch::full_like(net->c->weight, 0.1F);
      net->c->weight.mutable_grad() = odd.clone();
      for (int step = 0; step < 3; ++step) {
        for (const torch::Tensor& p : {net->a->weight, net->a->bias, net->b->weight, net->b->bias})
          if (p.grad().defined()) p.grad().zero_();
        mse(ddp.forward(data.x, comm.rank() == 0), data.y).backward();
        EXPECT_TRUE(close(net->b->weight.grad() * 3, used->b->weight.grad()));
        EXPECT_TRUE(torch::equal(net->c->weight.grad(), odd)) << net->c->weight.grad();
        EXPECT_FALSE(net->c->bias.grad().defined());
      }
    });
}

// Seven ranks, because the mean of seven equal numbers is not always that number.
TEST(Unused, AGradientInItsPlaceThatNobodyUsesKeepsItsBits) {
  const Data data = draw(20);
  thread_world(7, [&](Communicator& comm) {
    const auto net = seeded<BranchesImpl>(3);
    DdpOptions options = small_buckets();
    options.allow_unused = true;
    DistributedDataParallel ddp(net, comm, options);
    mse(ddp.forward(data.x, true), data.y).backward();
    const torch::Tensor before = net->b->weight.grad().clone();
    mse(ddp.forward(data.x, false), data.y).backward();
    EXPECT_TRUE(torch::equal(net->b->weight.grad(), before)) << net->b->weight.grad() - before;
  });
}

TEST(Unused, WhatWasUsedOnlyInsideNoSyncIsStillReduced) {
  const Data data = draw(20);
  const auto alone = seeded<BranchesImpl>(3);
  mse(alone->forward(data.x, true), data.y).backward();
  for (const bool allow : {false, true})
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<BranchesImpl>(3);
      for (const torch::Tensor& p : net->c->parameters()) torch::Tensor(p).requires_grad_(false);
      DdpOptions options = small_buckets();
      options.allow_unused = allow;
      DistributedDataParallel ddp(net, comm, options);
      {
        const auto guard = ddp.no_sync();
        (comm.rank() * 2 * mse(ddp.forward(data.x, true), data.y)).backward();  // 0 and 2: the mean is 1
      }
      mse(ddp.forward(data.x, false), data.y).backward();
      EXPECT_TRUE(close(net->b->weight.grad(), alone->b->weight.grad()));
    });
}

TEST(Unused, AStaticGraphThatChangesIsNamed) {
  const Data data = draw(20);
  const std::string text = error_of(2, [&](Communicator& comm) {
    DdpOptions options = small_buckets();
    options.static_graph = true;
    DistributedDataParallel ddp(seeded<BranchesImpl>(3), comm, options);
    mse(ddp.forward(data.x, true), data.y).backward();
    mse(ddp.forward(data.x, false), data.y).backward();
  });
  EXPECT_THAT(text, HasSubstr("the graph is not static: the gradient of b."));
}

TEST(Unused, AStaticGraphThatChangesInsideNoSyncIsNamed) {
  const Data data = draw(20);
  const std::string text = error_of(2, [&](Communicator& comm) {
    DdpOptions options = small_buckets();
    options.static_graph = true;
    DistributedDataParallel ddp(seeded<BranchesImpl>(3), comm, options);
    mse(ddp.forward(data.x, false), data.y).backward();
    const auto guard = ddp.no_sync();
    mse(ddp.forward(data.x, true), data.y).backward();
  });
  EXPECT_THAT(text, HasSubstr("came inside no_sync, and not in the first backward"));
}

}  // namespace
}  // namespace lockstep
