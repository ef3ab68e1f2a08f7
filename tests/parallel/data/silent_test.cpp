// Slips that would give wrong numbers without a word: a backward left out, the wrong parameters in the optimizer, a
// module that changes after DistributedDataParallel was made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/serialize.h>

#include <atomic>
#include <sstream>
#include <string>

#include "lockstep/data_parallel.h"
#include "lockstep/error.h"
#include "nets.h"

namespace lockstep {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;

// Counts the ranks that hear of it.
class Told {
 public:
  explicit Told(std::vector<std::string> parts) : parts_(std::move(parts)) {}
  template <typename Body>
  void by(const Body& body) {
    try {
      body();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      const bool all = std::all_of(parts_.begin(), parts_.end(),
                                   [&](const std::string& part) { return text.find(part) != std::string::npos; });
      EXPECT_TRUE(all) << text;
      if (all) ++ranks_;
      throw;
    }
  }
  int ranks() const { return ranks_; }

 private:
  const std::vector<std::string> parts_;
  std::atomic<int> ranks_ = 0;
};

// --- a backward is left out ---

enum class Slip { no_backward, backward_of_something_else };

void leave_one_out(int ranks, Slip slip, const DdpOptions& options, const transport::Options& transport) {
  const Data data = draw(10L * ranks);
  Told told({"ranks disagree: rank ", "of step 3", "of step 4"});
  try {
    thread_world(
        ranks,
        [&](Communicator& comm) {
          DistributedDataParallel ddp(seeded<NetImpl>(1), comm, options);
          const auto optimizer = sgd()(ddp.parameters());
          const Data mine = data.share(comm);
          told.by([&] {
            for (int step = 1; step <= 6; ++step) {
              optimizer->zero_grad();
              torch::Tensor loss = mse(ddp.forward(mine.x), mine.y);
              const bool slips = step == 3 && comm.rank() == 1;
              if (slips && slip == Slip::no_backward) continue;
              if (slips) loss = torch::ones({1}).requires_grad_(true).sum();
              loss.backward();
              optimizer->step();
            }
          });
        },
        transport);
  } catch (const std::exception&) {  // told has looked at it
  }
  EXPECT_EQ(told.ranks(), ranks);
}

TEST(Silent, ALeftOutBackwardIsToldToAllRanksWithBothSteps) {
  for (const int ranks : {2, 3, 5})
    for (const Slip slip : {Slip::no_backward, Slip::backward_of_something_else})
      for (const bool sharded : {false, true}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, slip " << static_cast<int>(slip) << ", sharded "
                                        << sharded);
        DdpOptions options = small_buckets();
        options.sharded = sharded;
        leave_one_out(ranks, slip, options, {});
      }
  transport::Options tcp;
  tcp.kind = TransportKind::tcp;
  leave_one_out(3, Slip::no_backward, small_buckets(), tcp);
}

// Not a slip: forwards that train nothing may be on one rank only, and accumulation may differ between ranks.
TEST(Silent, ForwardsThatTrainNothingAreNotCounted) {
  const Data data = draw(40);
  const auto want = trained_alone(data, 4);
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DistributedDataParallel ddp(net, comm, small_buckets());
    const auto optimizer = sgd()(ddp.parameters());
    const Data mine = data.share(comm);
    for (int step = 0; step < 4; ++step) {
      if (comm.rank() == 0) {
        const torch::NoGradGuard no_grad;
        ddp.forward(mine.x);
      }
      if (comm.rank() == 1) {
        net->eval();
        ddp.forward(mine.x);
        net->train();
        const auto guard = ddp.no_sync();
        ddp.forward(mine.x);
      }
      ddp_step(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
    }
    EXPECT_TRUE(close(copies(*net), want));
    EXPECT_TRUE(same_everywhere(comm, *net));
  });
}

TEST(Silent, StepsAreCountedAnewAfterJoin) {
  const Data data = draw(40);
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DistributedDataParallel ddp(net, comm, small_buckets());
    torch::optim::SGD optimizer(ddp.parameters(), 0.1);  // no momentum: ranks take different numbers of steps
    const Data mine = data.share(comm);
    const auto step = [&] { ddp_step(optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); }); };
    step();
    ddp.join([&] {
      for (int i = 0; i < 2 + 3 * comm.rank(); ++i) step();
    });
    for (int i = 0; i < 3; ++i) step();
    EXPECT_TRUE(same_everywhere(comm, *net));
  });
}

// Its parameters are used, or its input is handed through.
struct SometimesImpl : torch::nn::Module {
  SometimesImpl() { layer = register_module("layer", torch::nn::Linear(kDim, 1)); }
  std::pair<torch::Tensor, int> forward(const torch::Tensor& x, bool use) {
    return {use ? layer(x) : x.sum(1, true), 7};
  }
  torch::nn::Linear layer{nullptr};
};

TEST(Silent, WithAllowUnusedABackwardThatReachesNothingCountsAsZeros) {
  const Data data = draw(30);
  for (const bool flat : {false, true}) {
    const auto alone = seeded<SometimesImpl>(5);
    mse(alone->forward(data.rows(0, 10).x, true).first, data.rows(0, 10).y).backward();
    thread_world(3, [&](Communicator& comm) {
      const auto net = seeded<SometimesImpl>(5);
      DdpOptions options = small_buckets();
      options.allow_unused = true;
      options.flat = flat;
      DistributedDataParallel ddp(net, comm, options);
      const Data mine = data.share(comm);
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        const torch::Tensor x = mine.x.clone().requires_grad_(true);
        mse(ddp.forward(x, comm.rank() == 0).first, mine.y).backward();
        std::vector<torch::Tensor> whole;
        for (const torch::Tensor& gradient : gradients(*net)) whole.push_back(gradient * 3);
        EXPECT_TRUE(close(whole, gradients(*alone))) << "rank " << comm.rank() << ", step " << step;
      }
    });
  }
}

// torch::autograd::grad() goes through the output and accumulates nothing: no reduction begins, and the backward after
// it is one.
TEST(Silent, GradientsOfInputsAloneBeginNoReduction) {
  const Data data = draw(20);
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DdpOptions options = small_buckets();
    options.allow_unused = true;
    DistributedDataParallel ddp(net, comm, options);
    const Data mine = data.share(comm);
    const torch::Tensor x = mine.x.clone().requires_grad_(true);
    const torch::Tensor output = ddp.forward(x);
    const torch::Tensor slope = torch::autograd::grad({output.sum()}, {x}, {}, true, true)[0];
    (mse(output, mine.y) + slope.pow(2).mean()).backward();
    EXPECT_TRUE(same_everywhere(comm, *net));
    for (const torch::Tensor& p : net->parameters()) {
      torch::Tensor first = p.grad().clone();
      broadcast(comm, first, 0);
      EXPECT_TRUE(torch::equal(first, p.grad()));
    }
  });
}

// --- sharded, and an optimizer of the wrong parameters ---

TEST(Silent, ShardedNoticesAnOptimizerOfTheModulesOwnParameters) {
  const Data data = draw(40);
  const std::vector<MakeOptimizer> all = {sgd(), with<torch::optim::Adam>(torch::optim::AdamOptions(0.01)),
                                          with<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01))};
  for (const MakeOptimizer& make : all)
    for (const bool slip_of_an_arrow : {false, true}) {
      Told told({"nobody has used the first one's gradients", "ddp.parameters()"});
      error_of(2, [&](Communicator& comm) {
        const auto net = seeded<NetImpl>(1);
        DdpOptions options = small_buckets();
        options.sharded = true;
        DistributedDataParallel ddp(net, comm, options);
        const auto optimizer = make(slip_of_an_arrow ? ddp->parameters() : net->parameters());
        const Data mine = data.share(comm);
        told.by([&] {
          for (int step = 0; step < 3; ++step) ddp_step(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
        });
      });
      EXPECT_GE(told.ranks(), 1);
    }
}

// Whoever zeroes, and whether or not the optimizer counts versions: a step is noticed.
TEST(Silent, ShardedTrainsWhoeverZeroesTheGradients) {
  const Data data = draw(40);
  for (const MakeOptimizer& make : {sgd(), with<torch::optim::Adam>(torch::optim::AdamOptions(0.01))}) {
    const auto want = trained_alone(data, 4, make);
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      DdpOptions options = small_buckets();
      options.sharded = true;
      DistributedDataParallel ddp(net, comm, options);
      const auto optimizer = make(ddp.parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 4; ++step) {
        ddp->zero_grad();
        mse(ddp.forward(mine.x), mine.y).backward();
        optimizer->step();
      }
      ddp.sync();
      EXPECT_TRUE(close(copies(*net), want));
      comm.barrier();
    });
  }
}

// A backward that throws before its first gradient leaves nothing to reduce, and the next one reduces as usual.
TEST(Silent, ABackwardThatThrowsAtOnceCanBeTriedAgain) {
  const Data data = draw(40);
  for (const bool allow_unused : {false, true})
    for (const bool flat : {false, true})
      thread_world(2, [&](Communicator& comm) {
        SCOPED_TRACE(testing::Message() << "allow_unused " << allow_unused << ", flat " << flat);
        const auto net = seeded<NetImpl>(1);
        DdpOptions options = small_buckets();
        options.flat = flat;
        options.allow_unused = allow_unused;
        DistributedDataParallel ddp(net, comm, options);
        const Data mine = data.share(comm);
        const torch::Tensor output = ddp.forward(mine.x);
        bool throws = true;
        // Hooks of a tensor run in the order in which they were registered: after the one that ddp has registered.
        output.register_hook([&](const torch::Tensor& gradient) {
          if (throws) throw std::runtime_error("a first try");
          return gradient;
        });
        const torch::Tensor loss = mse(output, mine.y);
        EXPECT_THROW(loss.backward({}, /*retain_graph=*/true), std::exception);
        throws = false;
        loss.backward();
        const auto alone = seeded<NetImpl>(1);
        mse(alone->forward(data.x), data.y).backward();
        EXPECT_TRUE(close(gradients(*net), gradients(*alone)));
        comm.barrier();
      });
}

// --- a rank that catches its own error ---

TEST(Silent, WhatARankHasCaughtItselfIsWhatTheOthersHear) {
  const auto heard_by_rank_0 = [](const std::function<void(Communicator&)>& body) {
    return error_of(2, [&](Communicator& comm) {
      if (comm.rank() == 0) return body(comm);
      try {
        body(comm);
      } catch (const std::exception&) {
      }
    });
  };
  for (int round = 0; round < 10; ++round) {
    EXPECT_THAT(heard_by_rank_0([](Communicator& comm) {
                  const auto net = seeded<BranchesImpl>(3);
                  for (torch::Tensor& p : net->c->parameters()) p.requires_grad_(false);
                  DistributedDataParallel ddp(net, comm, small_buckets());
                  ddp.forward(draw(4).x, comm.rank() == 0).sum().backward();
                }),
                HasSubstr("no gradient in this backward for b.weight"));
    EXPECT_THAT(heard_by_rank_0([](Communicator& comm) {
                  DdpOptions options = small_buckets();
                  options.hook = [](Communicator& own, GradientBucket& bucket) -> Work {
                    if (own.rank() == 1) throw std::runtime_error("no more tea");
                    return own.all_reduce_async(as_buffer(bucket.flat()));
                  };
                  DistributedDataParallel ddp(seeded<NetImpl>(1), comm, options);
                  const Data data = draw(4);
                  mse(ddp.forward(data.x), data.y).backward();
                }),
                HasSubstr("no more tea"));
  }
}

// --- the module changes later ---

TEST(Silent, AParameterThatIsRegisteredLaterIsNamed) {
  const Data data = draw(20);
  const auto after = [&](const std::function<void(NetImpl&)>& change) {
    return error_of(2, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      DistributedDataParallel ddp(net, comm, small_buckets());
      const Data mine = data.share(comm);
      mse(ddp.forward(mine.x), mine.y).backward();
      change(*net);
      mse(ddp.forward(mine.x), mine.y).backward();
    });
  };
  EXPECT_THAT(after([](NetImpl& net) { net.register_parameter("late", torch::zeros({3})); }),
              HasSubstr("late was registered after DistributedDataParallel was made"));
  EXPECT_THAT(after([](NetImpl& net) { net.second->register_parameter("scale", torch::ones({1})); }),
              HasSubstr("second.scale was registered after"));
  EXPECT_THAT(after([](NetImpl& net) { net.register_module("head", torch::nn::Linear(2, 2)); }),
              HasSubstr("head.weight was registered after"));
  EXPECT_THAT(after([](NetImpl& net) { net.last = net.replace_module("last", torch::nn::Linear(kDim, 1)); }),
              HasSubstr("last.weight was registered after"));
  EXPECT_THAT(after([](NetImpl& net) { net.unregister_module("second"); }),
              HasSubstr("second.weight was taken out of the module"));
  EXPECT_EQ(after([](NetImpl& net) {
              net.register_parameter("table", torch::zeros({3}), false);
              net.register_buffer("count", torch::zeros({1}));
            }),
            "nothing was thrown");
}

// torch::load() and module->to() replace what autograd hangs the hooks on.
TEST(Silent, WeightsThatAreLoadedLaterAreTrainedAsBefore) {
  const Data data = draw(40);
  const auto want = trained_alone(data, 5, sgd(), 2);
  std::stringstream file;
  {
    Net loaded(seeded<NetImpl>(2));
    torch::save(loaded, file);
  }
  for (const bool there_and_back : {false, true})
    for (const bool static_graph : {false, true})
      thread_world(2, [&](Communicator& comm) {
        Net net(seeded<NetImpl>(1));
        DdpOptions options = small_buckets();
        options.static_graph = static_graph;
        DistributedDataParallel ddp(net, comm, options);
        const Data mine = data.share(comm);
        if (there_and_back) {
          mse(ddp.forward(mine.x), mine.y).backward();  // buckets are in use
          net->zero_grad();
          net->to(torch::kDouble);
          net->to(torch::kFloat);
        }
        std::stringstream copy(file.str());
        torch::load(net, copy);
        const auto optimizer = sgd()(ddp.parameters());
        for (int step = 0; step < 5; ++step) ddp_step(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
        EXPECT_TRUE(close(copies(*net), want)) << there_and_back << static_graph;
        EXPECT_TRUE(same_everywhere(comm, *net)) << there_and_back << static_graph;
      });
}

TEST(Silent, FlatSaysThatLoadingComesBefore) {
  for (const bool sharded : {false, true}) {
    const std::string text = error_of(2, [&](Communicator& comm) {
      Net net(seeded<NetImpl>(1));
      DdpOptions options = small_buckets();
      options.flat = true;
      options.sharded = sharded;
      DistributedDataParallel ddp(net, comm, options);
      std::stringstream file;
      torch::save(net, file);
      torch::load(net, file);
      ddp.forward(draw(4).x);
    });
    EXPECT_THAT(text, AllOf(HasSubstr("first.weight"), HasSubstr("torch::load() and module.to() before")));
  }
}

TEST(Silent, AComplexParameterIsRefusedByName) {
  const std::string text = error_of(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    net->second->register_parameter("phase", torch::zeros({3}, torch::kComplexFloat));
    const DistributedDataParallel ddp(net, comm);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("second.phase is ComplexFloat"), HasSubstr("view_as_complex")));
}

}  // namespace
}  // namespace lockstep
