// Parameters that are shared or frozen; buffers; uneven inputs; hooks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

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

// One tensor under two names, as libtorch's parameters() lists it: twice.
struct TiedImpl : torch::nn::Module {
  struct Half : torch::nn::Module {
    explicit Half(const torch::Tensor& shared) : weight(register_parameter("weight", shared)) {}
    torch::Tensor weight;
  };
  TiedImpl() {
    const torch::Tensor shared = torch::randn({kDim, kDim}) / 4;
    down = register_module("down", std::make_shared<Half>(shared));
    up = register_module("up", std::make_shared<Half>(down->weight));
    last = register_module("last", torch::nn::Linear(kDim, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last(torch::tanh(torch::tanh(x.matmul(down->weight)).matmul(up->weight.t())));
  }
  std::shared_ptr<Half> down, up;
  torch::nn::Linear last{nullptr};
};

TEST(Special, OneTensorUnderTwoNamesIsReducedOnce) {
  const Data data = draw(40);
  const auto alone = seeded<TiedImpl>(3);
  mse(alone->forward(data.x), data.y).backward();
  for (const bool flat : {false, true})
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<TiedImpl>(3);
      ASSERT_EQ(net->parameters().size(), 4U) << "libtorch no longer lists a shared tensor twice";
      DdpOptions options = small_buckets();
      options.flat = flat;
      DistributedDataParallel ddp(net, comm, options);
      if (!flat) {
        EXPECT_EQ(ddp.parameters().size(), 3U);
      }
      const Data mine = data.share(comm);
      mse(ddp.forward(mine.x), mine.y).backward();
      EXPECT_TRUE(close(net->down->weight.grad(), alone->down->weight.grad()));
      EXPECT_TRUE(net->down->weight.is_same(net->up->weight));
    });
}

// Two types, a weight whose memory is not in the order of its indices, and one without elements.
struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    wide = register_parameter("wide", torch::randn({kDim, 5}, torch::kDouble));
    turned = register_parameter("turned", torch::randn({5, kDim}).t());
    empty = register_parameter("empty", torch::zeros({0, 3}));
    last = register_module("last", torch::nn::Linear(10, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor left = x.to(torch::kDouble).matmul(wide).to(torch::kFloat);
    return last(torch::cat({left, x.matmul(turned)}, 1)) + empty.sum();
  }
  torch::Tensor wide, turned, empty;
  torch::nn::Linear last{nullptr};
};

TEST(Special, TypesAndStridesMayDiffer) {
  const Data data = draw(40);
  const auto train = [&](auto& net, auto parameters, const Data& mine) {
    const auto optimizer = sgd(0.01)(parameters);
    for (int step = 0; step < 4; ++step) ddp_step(*optimizer, [&] { return mse(net.forward(mine.x), mine.y); });
  };
  const auto alone = seeded<MixedImpl>(3);
  train(*alone, alone->parameters(), data);
  for (const int mode : {0, 1, 2})
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<MixedImpl>(comm.rank() == 0 ? 3 : 4);
      ASSERT_FALSE(net->turned.is_contiguous());
      DdpOptions options = small_buckets();
      options.flat = mode > 0;
      options.sharded = mode > 1;
      DistributedDataParallel ddp(net, comm, options);
      train(ddp, ddp.parameters(), data.share(comm));
      ddp.sync();
      EXPECT_EQ(net->turned.strides(), alone->turned.strides());
      for (std::size_t i = 0; i < 5; ++i)
        EXPECT_TRUE(close(net->parameters()[i], alone->parameters()[i])) << mode << " " << i;
      EXPECT_THAT(ddp.layout(), HasSubstr("Double"));
    });
}

TEST(Special, AModelWithNothingToTrain) {
  thread_world(2, [](Communicator& comm) {
    const auto net = seeded<NetImpl>(comm.rank());
    for (torch::Tensor& p : net->parameters()) p.requires_grad_(false);
    DistributedDataParallel ddp(net, comm);
    EXPECT_TRUE(ddp.parameters().empty());
    ddp.forward(draw(4).x);
    EXPECT_TRUE(same_everywhere(comm, *net));
  });
}

TEST(Special, FrozenLayersAreLeftAlone) {
  const Data data = draw(40);
  for (const bool sharded : {false, true})
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(comm.rank());
      net->first->weight.requires_grad_(false);
      net->first->bias.requires_grad_(false);
      DdpOptions options = small_buckets();
      options.sharded = sharded;
      DistributedDataParallel ddp(net, comm, options);
      EXPECT_TRUE(torch::equal(net->first->weight, seeded<NetImpl>(0)->first->weight)) << "not rank 0's";
      const torch::Tensor before = net->first->weight.clone();
      const auto optimizer = sgd()(ddp.parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 3; ++step) ddp_step(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
      ddp.sync();
      EXPECT_TRUE(torch::equal(net->first->weight, before));
      EXPECT_FALSE(net->first->weight.grad().defined());
      EXPECT_TRUE(same_everywhere(comm, *net));
      net->first->weight.requires_grad_(true);
      try {
        ddp.forward(mine.x);
        ADD_FAILURE() << "a layer that was thawed went unnoticed";
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("first.weight"));
      }
    });
}

// --- buffers ---

TEST(Special, BatchNormBuffersAreRankZerosUnlessSwitchedOff) {
  const Data data = draw(40);
  for (const bool on : {true, false})
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1, kDim, true);
      DdpOptions options = small_buckets();
      options.broadcast_buffers = on;
      DistributedDataParallel ddp(net, comm, options);
      const Data mine = data.share(comm);  // ranks see different statistics
      torch::Tensor loss = mse(ddp.forward(mine.x), mine.y) + mse(ddp.forward(mine.x * 2), mine.y);
      loss.backward();  // two forwards before it: nothing that autograd saved may have changed
      net->eval();
      const torch::Tensor own = net->norm->running_mean.clone();
      ddp.forward(mine.x);  // with gradients on
      EXPECT_TRUE(torch::equal(own, net->norm->running_mean)) << "evaluation changed the buffers";
      net->train();
      const auto pass = ddp.forward(mine.x);
      torch::Tensor mean = net->norm->running_mean.clone();
      torch::Tensor other = mean.clone();
      broadcast(comm, other, 0);
      // After the last forward each rank has added its own batch once.
      if (comm.rank() == 1) {
        EXPECT_FALSE(close(mean, other));
      }
      {
        const auto before = net->norm->running_mean.clone();
        net->eval();
        const torch::NoGradGuard no_grad;
        ddp.forward(mine.x);
        EXPECT_TRUE(torch::equal(before, net->norm->running_mean)) << "evaluation changed the buffers";
      }
      net->train();
      const torch::Tensor momentum_base = net->norm->running_mean.clone();
      ddp.forward(mine.x);
      // With rank 0's buffers on both ranks, running = 0.9 * rank 0's + 0.1 * own batch mean.
      torch::Tensor root_base = momentum_base.clone();
      broadcast(comm, root_base, 0);
      const torch::Tensor batch_mean = torch::relu(net->first(mine.x)).mean(0).detach();
      const torch::Tensor expected = 0.9 * (on ? root_base : momentum_base) + 0.1 * batch_mean;
      EXPECT_TRUE(close(net->norm->running_mean, expected)) << on << " rank " << comm.rank();
    });
}

// --- uneven inputs ---

TEST(Special, JoinWithThreeFiveAndSevenBatches) {
  const Data data = draw(8 * 7);
  const int batches[] = {3, 5, 7};
  for (const bool by_active : {false, true}) {
    // One process that does the same: the mean over the ranks that still have a batch, divided as the option says.
    const auto alone = seeded<NetImpl>(1);
    const auto reference = sgd(0.05)(alone->parameters());
    for (int step = 0; step < 7; ++step) {
      reference->zero_grad();
      double active = 0;
      torch::Tensor sum = torch::zeros({});
      for (int rank = 0; rank < 3; ++rank)
        if (step < batches[rank]) {
          const Data some = data.rows(8 * step, 8 * step + 4 + rank);
          sum = sum + mse(alone->forward(some.x), some.y);
          ++active;
        }
      (sum / (by_active ? active : 3.0)).backward();
      reference->step();
    }
    thread_world(3, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      DistributedDataParallel ddp(net, comm, small_buckets());
      const auto optimizer = sgd(0.05)(ddp.parameters());
      ddp.join(
          [&] {
            for (int step = 0; step < batches[comm.rank()]; ++step) {
              const Data some = data.rows(8 * step, 8 * step + 4 + comm.rank());
              ddp_step(*optimizer, [&] { return mse(ddp.forward(some.x), some.y); });
            }
          },
          {.divide_by_active = by_active});
      EXPECT_TRUE(close(copies(*net), copies(*alone))) << "rank " << comm.rank();
      EXPECT_TRUE(same_everywhere(comm, *net));
    });
  }
}

TEST(Special, JoinWithBuffersHooksUnusedAndARankWithoutAnyBatch) {
  const Data data = draw(40);
  thread_world(3, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1, kDim, true);
    DdpOptions options = small_buckets();
    options.allow_unused = true;
    options.hook = all_reduce_hook();
    DistributedDataParallel ddp(net, comm, options);
    const auto optimizer = sgd(0.05)(ddp.parameters());
    for (int epoch = 0; epoch < 2; ++epoch)
      ddp.join([&] {
        for (int step = 0; step < comm.rank(); ++step)  // 0, 1 and 2
          ddp_step(*optimizer, [&] { return mse(ddp.forward(data.x), data.y); });
      });
    EXPECT_TRUE(same_everywhere(comm, *net));
    torch::Tensor mean = net->norm->running_mean.clone();
    broadcast(comm, mean, 0);
    EXPECT_TRUE(torch::equal(mean, net->norm->running_mean));
  });
}

// --- communication hooks ---

TEST(Special, AHookReplacesTheAllReduce) {
  const Data data = draw(40);
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    std::size_t calls = 0;
    DdpOptions options = small_buckets();
    options.hook = [&](Communicator& own, GradientBucket& bucket) {
      ++calls;
      return then(all_reduce_mean_async(own, bucket.flat()), [flat = bucket.flat()] { flat.mul_(2); });
    };
    DistributedDataParallel ddp(net, comm, options);
    const auto alone = seeded<NetImpl>(1);
    mse(alone->forward(data.x), data.y).backward();
    const Data mine = data.share(comm);
    mse(ddp.forward(mine.x), mine.y).backward();
    EXPECT_GT(calls, 1U);
    std::vector<torch::Tensor> doubled;
    for (const torch::Tensor& gradient : gradients(*alone)) doubled.push_back(2 * gradient);
    EXPECT_TRUE(close(gradients(*net), doubled));
  });
}

TEST(Special, HalfPrecisionHooksRoundButAgree) {
  const Data data = draw(60);
  const auto want = trained_alone(data, 5);
  for (const bool bfloat : {true, false})
    thread_world(3, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      DdpOptions options = small_buckets();
      options.hook = bfloat ? bfloat16_hook() : float16_hook();
      DistributedDataParallel ddp(net, comm, options);
      const auto optimizer = sgd()(ddp.parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 5; ++step) ddp_step(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
      EXPECT_TRUE(close(copies(*net), want, bfloat ? kBfloat16 : kFloat16));
      EXPECT_FALSE(close(copies(*net), want)) << "nothing was rounded: the hook did not run";
      EXPECT_TRUE(same_everywhere(comm, *net));
    });
}

TEST(Special, OneHookServesTwoModels) {
  const Data data = draw(40);
  thread_world(2, [&](Communicator& comm) {
    const Data mine = data.share(comm);
    const auto gradients = [&](const CommHook& first, const CommHook& second) {
      const auto a = seeded<NetImpl>(1);
      const auto b = seeded<NetImpl>(2);
      DdpOptions options = small_buckets();
      options.hook = first;
      DistributedDataParallel ddp_a(a, comm, options);
      options.hook = second;
      DistributedDataParallel ddp_b(b, comm, options);
      for (int step = 0; step < 3; ++step)
        (mse(ddp_a.forward(mine.x), mine.y) + mse(ddp_b.forward(mine.x), mine.y)).backward();
      std::vector<torch::Tensor> all;
      for (const auto& net : {a, b})
        for (const torch::Tensor& p : net->parameters()) all.push_back(p.grad().clone());
      return all;
    };
    const CommHook one = bfloat16_hook();
    EXPECT_EQ(distance(gradients(one, one), gradients(bfloat16_hook(), bfloat16_hook())), 0);
  });
}

TEST(Special, BuffersOfAnyTypeAndGroupsOfRanks) {
  std::atomic<int> told = 0;
  const std::string text = error_of(4, [&](Communicator& world) {
    auto group = world.split(world.rank() / 2);
    const auto net = seeded<BranchesImpl>(3);
    for (torch::Tensor& unused : net->c->parameters()) unused.requires_grad_(false);
    net->register_buffer("mask", torch::full({3}, group->rank() == 0, torch::kBool));
    net->register_buffer("small", torch::full({2}, group->rank(), torch::kShort));
    DistributedDataParallel ddp(net, *group, small_buckets());
    EXPECT_TRUE(net->named_buffers()["mask"].all().item<bool>());
    EXPECT_EQ(net->named_buffers()["small"].sum().item<int>(), 0);
    try {
      world.barrier();  // an error ends the world, so every group is made first
      ddp.forward(draw(4).x, world.rank() != 3).sum().backward();  // only the last rank does not use b
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank ")) << "names ranks of the world";
      if (std::string(error.what()).find("rank 3: no gradient in this backward for b.weight") != std::string::npos)
        ++told;
      throw;
    }
  });
  EXPECT_GE(told, 1) << text;  // rank 3 at least, whatever the others heard first
}

TEST(Special, AnExceptionInsideJoinIsEveryonesAtOnce) {
  const Data data = draw(20);
  const auto began = Clock::now();
  const std::string text = error_of(2, [&](Communicator& comm) {
    DistributedDataParallel ddp(seeded<NetImpl>(1), comm, small_buckets());
    try {
      ddp.join([&] {
        if (comm.rank() == 1) throw std::runtime_error("no more coffee");
        mse(ddp.forward(data.x), data.y).backward();
      });
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("no more coffee"));
      if (comm.rank() == 0) throw;  // rank 1 leaves at once, and in good order
    }
  });
  EXPECT_THAT(text, HasSubstr("no more coffee"));
  EXPECT_LT(Clock::now() - began, 5s);
}

TEST(Special, OneModuleIsAveragedByOneOnly) {
  thread_world(1, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    {
      const DistributedDataParallel first(net, comm);
      EXPECT_THAT([&] { DistributedDataParallel(net, comm); },
                  ThrowsMessage<UsageError>(HasSubstr("averaged over ranks by somebody else already")));
      EXPECT_THROW(register_ddp_hooks(*net, comm), UsageError);
    }
    const DistributedDataParallel later(net, comm);
  });
}

TEST(Special, StatisticsAndTheLayoutTellWhatHappened) {
  const Data data = draw(20);
  thread_world(2, [&](Communicator& comm) {
    DistributedDataParallel ddp(seeded<NetImpl>(1), comm, small_buckets());
    for (int step = 0; step < 2; ++step) mse(ddp.forward(data.x), data.y).backward();
    const auto& statistics = ddp.statistics();
    EXPECT_GT(statistics.forward, 0);
    EXPECT_GT(statistics.backward, 0);
    EXPECT_GT(statistics.exposed_communication, 0);
    ASSERT_GT(statistics.buckets.size(), 1U);
    double sum = 0;
    for (const auto& bucket : statistics.buckets) {
      EXPECT_GT(bucket.bytes, 0U);
      EXPECT_GE(bucket.began, bucket.ready);
      EXPECT_GE(bucket.ended, bucket.began);
      sum += bucket.ended - bucket.began;
    }
    EXPECT_NEAR(statistics.communication, sum, 1e-9);
    EXPECT_THAT(ddp.layout(), HasSubstr("last.bias"));
  });
}

TEST(Special, AModuleOfAnotherTypeIsNamed) {
  const std::string text = error_of(1, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DistributedDataParallel ddp(net, comm);
    net->to(torch::kDouble);
    ddp.forward(draw(4).x.to(torch::kDouble));
  });
  EXPECT_THAT(text, HasSubstr("first.weight was Float when DistributedDataParallel was made and is Double now"));
}

}  // namespace
}  // namespace lockstep
