// Flat and sharded: what the optimizer gets, and the rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

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

TEST(Flat, AModuleThatMovesItsParametersIsCaughtByName) {
  const std::string text = error_of(1, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DdpOptions options;
    options.flat = true;
    DistributedDataParallel ddp(net, comm, options);
    net->to(torch::kDouble);
    net->to(torch::kFloat);
    ddp.forward(draw(4).x);
  });
  EXPECT_THAT(text, HasSubstr("the data of first.weight is no longer where flat parameters put it"));
}

TEST(Flat, ShardedOwnsAShareAndRefusesWhatItCannotDo) {
  const Data data = draw(40);
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    std::int64_t all = 0;
    for (const torch::Tensor& p : net->parameters()) all += p.numel();
    DdpOptions options = small_buckets();
    options.sharded = true;
    DistributedDataParallel ddp(net, comm, options);
    std::int64_t mine = 0;
    for (const torch::Tensor& block : ddp.parameters()) mine += block.numel();
    EXPECT_GE(mine, all / 2);
    EXPECT_LT(mine, all / 2 + 8 * 32);  // padding: two cache lines a bucket at the most
    EXPECT_THROW(ddp.join([] {}), UsageError);
  });
  const std::string twice = error_of(2, [&](Communicator& comm) {
    DdpOptions options = small_buckets();
    options.sharded = true;
    DistributedDataParallel ddp(seeded<NetImpl>(1), comm, options);
    mse(ddp.forward(data.x), data.y).backward();
    mse(ddp.forward(data.x), data.y).backward();
  });
  EXPECT_THAT(twice, HasSubstr("a second backward before the optimizer's step"));
  DdpOptions both;
  both.sharded = true;
  both.hook = all_reduce_hook();
  EXPECT_THAT(error_of(1, [&](Communicator& comm) { DistributedDataParallel ddp(seeded<NetImpl>(1), comm, both); }),
              HasSubstr("sharded with a communication hook"));
}

// Gradients that were gathered inside no_sync and then thrown away: by all ranks, or by none.
TEST(Flat, ZeroGradAfterNoSyncForgetsAllOfThem) {
  const Data data = draw(40);
  const auto want = trained_alone(data, 4);
  for (const int mode : {0, 1, 2})
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      DdpOptions options = small_buckets();
      options.flat = mode > 0;
      options.sharded = mode > 1;
      DistributedDataParallel ddp(net, comm, options);
      const auto optimizer = sgd()(ddp.parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 4; ++step) {
        {
          const auto guard = ddp.no_sync();
          (100 * mse(ddp.forward(mine.x), mine.y)).backward();
        }
        ddp_step(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });  // begins with zero_grad
      }
      ddp.sync();
      EXPECT_TRUE(close(copies(*net), want)) << mode;
    });
}

TEST(Flat, BlockGradientsThatWereReplacedAreBroughtBack) {
  const Data data = draw(40);
  const auto run = [&](bool flat) {
    std::vector<torch::Tensor> weights;
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      DdpOptions options = small_buckets();
      options.flat = flat;
      DistributedDataParallel ddp(net, comm, options);
      const auto optimizer = sgd()(ddp.parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 4; ++step) {
        optimizer->zero_grad();
        mse(ddp.forward(mine.x), mine.y).backward();
        for (torch::Tensor p : ddp.parameters()) p.mutable_grad() = p.grad() * 0.5;
        optimizer->step();
      }
      if (comm.rank() == 0) weights = copies(*net);
    });
    return weights;
  };
  EXPECT_TRUE(close(run(true), run(false)));
}

TEST(Flat, ShardedTellsClippedGradientsFromUsedOnes) {
  const Data data = draw(20);
  const std::string text = error_of(2, [&](Communicator& comm) {
    DdpOptions options = small_buckets();
    options.sharded = true;
    DistributedDataParallel ddp(seeded<NetImpl>(1), comm, options);
    mse(ddp.forward(data.x), data.y).backward();
    ddp.clip_grad_norm(1e-3);
    mse(ddp.forward(data.x), data.y).backward();
  });
  EXPECT_THAT(text, HasSubstr("a second backward before the optimizer's step"));
}

// Comes late to its parameters, when it is told to.
struct LateImpl : NetImpl {
  torch::Tensor forward(torch::Tensor x) {
    std::this_thread::sleep_for(late);
    return NetImpl::forward(std::move(x));
  }
  std::chrono::milliseconds late{0};
};

// All ranks look at the same model between backward and the optimizer's step, however late one of them is, and the look
// does not stand for the wait after that step.
TEST(Flat, ShardedWaitsForEveryRanksStepAlsoAfterAForwardBeforeIt) {
  const Data data = draw(40);
  const auto want = trained_alone(data, 4);
  for (const bool records : {false, true}) {
    SCOPED_TRACE(records);
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<LateImpl>(1);
      DdpOptions options = small_buckets();
      options.sharded = true;
      DistributedDataParallel ddp(net, comm, options);
      const auto optimizer = sgd()(ddp.parameters());
      const Data mine = data.share(comm);
      double looked = 0;
      for (int step = 0; step < 4; ++step) {
        ddp->zero_grad();
        mse(ddp.forward(mine.x), mine.y).backward();
        {
          const torch::AutoGradMode mode(records);
          const NoSync no_sync = ddp.no_sync();  // a forward that does not count as a step
          if (comm.rank() == 1) net->late = std::chrono::milliseconds(50);
          looked += ddp.forward(data.x).sum().item<double>();
          net->late = std::chrono::milliseconds(0);
        }
        if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        optimizer->step();
      }
      ddp.sync();
      EXPECT_TRUE(close(copies(*net), want));
      std::vector<double> all{looked, looked};
      comm.all_gather(ConstBuffer(&looked, 1, DType::float64), Buffer(all.data(), 2, DType::float64));
      EXPECT_EQ(all[0], all[1]) << "a rank has seen parameters that another one was updating";
      comm.barrier();
    });
  }
}

TEST(Flat, ClippingIsOverAllRanks) {
  const Data data = draw(40);
  const auto alone = seeded<NetImpl>(1);
  mse(alone->forward(data.x), data.y).backward();
  double square = 0;
  double largest = 0;
  for (const torch::Tensor& p : alone->parameters()) {
    square += p.grad().pow(2).sum().item<double>();
    largest = std::max(largest, p.grad().abs().max().item<double>());
  }
  const double norm = std::sqrt(square);
  for (const bool sharded : {false, true})
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      DdpOptions options = small_buckets();
      options.sharded = sharded;
      DistributedDataParallel ddp(net, comm, options);
      const Data mine = data.share(comm);
      mse(ddp.forward(mine.x), mine.y).backward();
      EXPECT_TRUE(close(ddp.clip_grad_norm(1e9, std::numeric_limits<double>::infinity()), largest));
      EXPECT_TRUE(close(ddp.clip_grad_norm(norm / 4), norm));
      EXPECT_TRUE(close(ddp.clip_grad_norm(1e9), norm / 4));
    });
}

TEST(Flat, GradientsAndParametersOutliveDdp) {
  const Data data = draw(20);
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    {
      DdpOptions options;
      options.sharded = true;
      DistributedDataParallel ddp(net, comm, options);
      mse(ddp.forward(data.x), data.y).backward();
    }
    EXPECT_TRUE(std::isfinite(mse(net->forward(data.x), data.y).item<float>()));
    mse(net->forward(data.x), data.y).backward();  // no hook is left
    EXPECT_TRUE(net->first->weight.grad().isfinite().all().item<bool>());
  });
}

}  // namespace
}  // namespace lockstep
