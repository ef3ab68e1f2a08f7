// Parameters that are shared, frozen or unused; buffers; uneven inputs; hooks; sharded rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/tensor.h"
#include "lockstep/parallel/data/autograd.h"
#include "lockstep/parallel/data/comm_hooks.h"
#include "lockstep/parallel/data/ddp.h"
#include "nets.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;

constexpr double kClose = 1e-5;

DdpOptions small_buckets() {
  DdpOptions options;
  options.first_bucket_bytes = 64;
  options.bucket_bytes = 700;
  return options;
}

// The text of what a world throws.
std::string error_of(int ranks, const std::function<void(Communicator&)>& body) {
  try {
    thread_world(ranks, body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

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
      EXPECT_TRUE(torch::allclose(net->down->weight.grad(), alone->down->weight.grad(), 1e-4, 1e-6));
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
        EXPECT_TRUE(torch::allclose(net->parameters()[i], alone->parameters()[i], 1e-4, 1e-6)) << mode << " " << i;
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
      EXPECT_LT(distance({net->first->weight}, {seeded<NetImpl>(0)->first->weight}), 1e-9) << "not rank 0's";
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

// --- unused parameters ---

// Uses branch a, b or both.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    a = register_module("a", torch::nn::Linear(kDim, 1));
    b = register_module("b", torch::nn::Linear(kDim, 1));
    c = register_module("c", torch::nn::Linear(kDim, 1));
  }
  torch::Tensor forward(const torch::Tensor& x, bool use_b) { return use_b ? a(x) + b(x) : a(x); }
  torch::nn::Linear a{nullptr}, b{nullptr}, c{nullptr};  // c: never
};

// Rank 1 adds the branches up the other way round, so its gradients come in another order.
TEST(Special, RanksWhoseGradientsComeInDifferentOrdersAgree) {
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
      for (std::size_t i = 0; i < 6; ++i)
        EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), alone->parameters()[i].grad(), 1e-4, 1e-6)) << step;
    }
    first_ready[static_cast<std::size_t>(comm.rank())] = net->named_parameters().keys()[order.front()];
  });
  EXPECT_NE(first_ready[0], first_ready[1]) << "the orders do not differ: the test tests nothing";
}

TEST(Special, AnUnusedParameterIsNamedWithItsRankOnAllRanks) {
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

TEST(Special, AllowedUnusedParametersCountAsZerosAndWhatNobodyUsedIsUntouched) {
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
        EXPECT_TRUE(torch::allclose(net->b->weight.grad() * 3, used->b->weight.grad(), 1e-4, 1e-6));
        EXPECT_TRUE(torch::equal(net->c->weight.grad(), odd)) << net->c->weight.grad();
        EXPECT_FALSE(net->c->bias.grad().defined());
      }
    });
}

// Seven ranks, because the mean of seven equal numbers is not always that number.
TEST(Special, AGradientInItsPlaceThatNobodyUsesKeepsItsBits) {
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

TEST(Special, WhatWasUsedOnlyInsideNoSyncIsStillReduced) {
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
      EXPECT_TRUE(torch::allclose(net->b->weight.grad(), alone->b->weight.grad(), 1e-4, 1e-6));
    });
}

TEST(Special, AStaticGraphThatChangesIsNamed) {
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
      const double apart = (mean - other).abs().max().item<double>();
      if (comm.rank() == 1) {
        EXPECT_EQ(apart > 1e-9, true);
      }
      std::vector<torch::Tensor> synced;
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
      EXPECT_TRUE(torch::allclose(net->norm->running_mean, expected, 1e-4, 1e-6)) << on << " rank " << comm.rank();
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
      EXPECT_LT(distance(copies(*net), copies(*alone)), kClose) << "rank " << comm.rank();
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
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), 2 * alone->parameters()[i].grad(), 1e-4, 1e-6));
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
      const double off = distance(copies(*net), want);
      EXPECT_LT(off, bfloat ? 0.03 : 0.004);
      EXPECT_GT(off, 1e-7) << "nothing was rounded: the hook did not run";
      EXPECT_TRUE(same_everywhere(comm, *net));
    });
}

// --- flat and sharded ---

TEST(Special, AModuleThatMovesItsParametersIsCaughtByName) {
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

TEST(Special, ShardedOwnsAShareAndRefusesWhatItCannotDo) {
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
TEST(Special, ZeroGradAfterNoSyncForgetsAllOfThem) {
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
      EXPECT_LT(distance(copies(*net), want), kClose) << mode;
    });
}

TEST(Special, BlockGradientsThatWereReplacedAreBroughtBack) {
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
  EXPECT_LT(distance(run(true), run(false)), kClose);
}

TEST(Special, ShardedTellsClippedGradientsFromUsedOnes) {
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

TEST(Special, AStaticGraphThatChangesInsideNoSyncIsNamed) {
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
  error_of(4, [&](Communicator& world) {
    auto group = world.split(world.rank() / 2);
    const auto net = seeded<BranchesImpl>(3);
    net->register_buffer("mask", torch::full({3}, group->rank() == 0, torch::kBool));
    net->register_buffer("small", torch::full({2}, group->rank(), torch::kShort));
    DistributedDataParallel ddp(net, *group, small_buckets());
    EXPECT_TRUE(net->named_buffers()["mask"].all().item<bool>());
    EXPECT_EQ(net->named_buffers()["small"].sum().item<int>(), 0);
    try {
      ddp.forward(draw(4).x, world.rank() != 3).sum().backward();  // the last rank does not use b; nobody uses c
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank ")) << "names ranks of the world";
      if (std::string(error.what()).find("rank 3: no gradient in this backward for b.weight") != std::string::npos)
        ++told;
      throw;
    }
  });
  EXPECT_GE(told, 1);
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
      std::this_thread::sleep_for(200ms);  // and does not leave at once
      throw;
    }
  });
  EXPECT_THAT(text, HasSubstr("no more coffee"));
  EXPECT_LT(Clock::now() - began, 5s);
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

TEST(Special, ClippingIsOverAllRanks) {
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
      EXPECT_NEAR(ddp.clip_grad_norm(1e9, std::numeric_limits<double>::infinity()), largest, 1e-5);
      EXPECT_NEAR(ddp.clip_grad_norm(norm / 4), norm, 1e-4);
      EXPECT_NEAR(ddp.clip_grad_norm(1e9), norm / 4, 1e-4);
    });
}

TEST(Special, GradientsAndParametersOutliveDdp) {
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

}  // namespace
}  // namespace lockstep
