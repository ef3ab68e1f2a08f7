// DistributedDataParallel against a single process that sees the whole batch, on ranks that are threads.
#include "lockstep/data_parallel.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "lockstep/error.h"
#include "lockstep/gradients.h"
#include "lockstep/tensor.h"
#include "nets.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;

struct Mode {
  const char* name;
  bool flat = false;
  bool sharded = false;
};
constexpr Mode kModes[] = {{"plain"}, {"flat", true}, {"sharded", true, true}};

DdpOptions options_for(const Mode& mode) {
  DdpOptions options;
  options.flat = mode.flat;
  options.sharded = mode.sharded;
  options.first_bucket_bytes = 64;  // so that the small model has several buckets
  options.bucket_bytes = 700;
  options.block_bytes = 256;
  return options;
}

// Trains on every rank's share and compares with `want` there.
void expect_like(const std::vector<torch::Tensor>& want, Communicator& comm, const Data& data, int steps,
                 const DdpOptions& options, const MakeOptimizer& make) {
  const auto net = seeded<NetImpl>(100 + comm.rank());  // the weights must come from rank 0
  if (comm.rank() == 0) {
    const auto right = seeded<NetImpl>(1);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < net->parameters().size(); ++i) net->parameters()[i].copy_(right->parameters()[i]);
  }
  DistributedDataParallel ddp(net, comm, options);
  const auto optimizer = make(ddp.parameters());
  const Data mine = data.share(comm);
  for (int step = 0; step < steps; ++step) ddp_step(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
  ddp.sync();
  EXPECT_TRUE(close(copies(*net), want)) << "rank " << comm.rank() << " of " << comm.size();
  EXPECT_TRUE(same_everywhere(comm, *net));
}

TEST(Ddp, EqualsASingleProcessInEveryModeWithEveryOptimizer) {
  const Data data = draw(60);
  const std::vector<std::pair<const char*, MakeOptimizer>> optimizers = {
      {"sgd", sgd()},
      {"adam", with<torch::optim::Adam>(torch::optim::AdamOptions(1e-2).eps(kAdaptiveEps))},
      {"adamw", with<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2).weight_decay(0.1).eps(kAdaptiveEps))},
      {"rmsprop", with<torch::optim::RMSprop>(torch::optim::RMSpropOptions(1e-3).eps(kAdaptiveEps))},
      {"adagrad", with<torch::optim::Adagrad>(torch::optim::AdagradOptions(1e-2).eps(kAdaptiveEps))}};
  for (const auto& [name, make] : optimizers) {
    const auto want = trained_alone(data, 12, make);
    for (const Mode& mode : kModes)
      for (const int ranks : {1, 2, 3, 4}) {
        SCOPED_TRACE(fmt::format("{} {} on {} ranks", name, mode.name, ranks));
        thread_world(ranks, [&](Communicator& comm) { expect_like(want, comm, data, 12, options_for(mode), make); });
      }
  }
}

// Fault 7: nothing fails, and the others' statistics show that they waited.
TEST(Ddp, ASlowRankIsSeenInTheWaitingTimeOfTheOthers) {
  constexpr int kSteps = 5;
  constexpr auto kStep = std::chrono::milliseconds(10);
  std::array<double, 3> waited{};
  thread_world(3, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DistributedDataParallel ddp(net, comm);
    const Data mine = draw(60).share(comm);
    for (int step = 0; step < kSteps; ++step) {
      const auto loss = mse(ddp.forward(mine.x), mine.y);
      std::this_thread::sleep_for(comm.rank() == 1 ? 3 * kStep : kStep);
      loss.backward();
      waited[static_cast<std::size_t>(comm.rank())] += ddp.statistics().exposed_communication;
    }
    EXPECT_TRUE(same_everywhere(comm, *net));
  });
  // Two steps' time in each step, less what the scheduler takes away from them.
  const double expected = std::chrono::duration<double>(2 * kStep * kSteps).count();
  EXPECT_GT(waited[0], expected / 2);
  EXPECT_GT(waited[2], expected / 2);
  EXPECT_LT(waited[1], std::min(waited[0], waited[2]));
}

TEST(Ddp, WorksOverTcpAndWithDefaultBuckets) {
  const Data data = draw(60);
  const auto want = trained_alone(data, 5);
  transport::Options tcp;
  tcp.kind = TransportKind::tcp;
  thread_world(
      3, [&](Communicator& comm) { expect_like(want, comm, data, 5, {}, sgd()); }, tcp);
  thread_world(5, [&](Communicator& comm) { expect_like(want, comm, data, 5, {}, sgd()); });
}

TEST(Ddp, ShardedOverTcpIsRefusedWithAReason) {
  transport::Options tcp;
  tcp.kind = TransportKind::tcp;
  try {
    thread_world(
        2, [&](Communicator& comm) { DistributedDataParallel ddp(seeded<NetImpl>(1), comm, options_for(kModes[2])); },
        tcp);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("share none"));
  }
}

TEST(Ddp, GradientsLieInTheArenaAndStayThere) {
  const Data data = draw(20);
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DistributedDataParallel ddp(net, comm, options_for(kModes[0]));
    const auto optimizer = sgd()(ddp.parameters());
    const Data mine = data.share(comm);
    std::vector<void*> places;
    for (int step = 0; step < 4; ++step) {
      ddp_step(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
      std::vector<void*> now;
      for (const torch::Tensor& p : net->parameters()) {
        now.push_back(p.grad().data_ptr());
        EXPECT_TRUE(ddp.communicator().in_arena(now.back()));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(now.back()) % 64, 0U);
      }
      if (step > 0) {
        EXPECT_EQ(now, places) << "a gradient moved in step " << step;
      }
      places = now;
    }
  });
}

TEST(Ddp, AGradientSetToNoneOrReplacedIsBroughtBack) {
  const Data data = draw(60);
  for (const Mode& mode : kModes) {
    SCOPED_TRACE(mode.name);
    const auto want = trained_alone(data, 6);
    thread_world(3, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      DistributedDataParallel ddp(net, comm, options_for(mode));
      const auto optimizer = sgd()(ddp.parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 6; ++step) {
        const torch::Tensor loss = mse(ddp.forward(mine.x), mine.y);
        for (torch::Tensor p : ddp.parameters()) p.mutable_grad().reset();  // after forward: the awkward order
        if (!mode.flat && step % 2 == 1)
          for (torch::Tensor p : net->parameters()) p.mutable_grad() = torch::zeros_like(p);
        loss.backward();
        optimizer->step();
      }
      ddp.sync();
      EXPECT_TRUE(close(copies(*net), want));
    });
  }
}

TEST(Ddp, AccumulationWithNoSyncEqualsTheBigBatch) {
  const Data data = draw(60);
  for (const Mode& mode : kModes) {
    SCOPED_TRACE(mode.name);
    const auto want = trained_alone(data, 6);
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      DistributedDataParallel ddp(net, comm, options_for(mode));
      const auto optimizer = sgd()(ddp.parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 6; ++step) {
        optimizer->zero_grad();
        for (int part = 0; part < 3; ++part) {
          const Data some = mine.rows(part * 10, part * 10 + 10);
          const torch::Tensor loss = mse(ddp.forward(some.x), some.y) / 3;  // forward outside of the guard
          std::optional<NoSync> guard;
          if (part < 2) guard.emplace(ddp.no_sync());
          loss.backward();
        }
        optimizer->step();
      }
      ddp.sync();
      EXPECT_TRUE(close(copies(*net), want));
    });
  }
}

TEST(Ddp, InsideNoSyncGradientsStayTheRanksOwn) {
  const Data data = draw(20);
  thread_world(2, [&](Communicator& comm) {
    DistributedDataParallel ddp(seeded<NetImpl>(1), comm);
    const auto alone = seeded<NetImpl>(1);
    const Data mine = data.share(comm);
    mse(alone->forward(mine.x), mine.y).backward();
    const auto guard = ddp.no_sync();
    mse(ddp.forward(mine.x), mine.y).backward();
    EXPECT_TRUE(close(ddp->first->weight.grad(), alone->first->weight.grad()));
  });
}

TEST(Ddp, SeveralBackwardPassesAndTwoForwardsBeforeThem) {
  const Data data = draw(40);
  const auto alone = seeded<NetImpl>(1);
  mse(alone->forward(data.x), data.y).backward();
  (3 * mse(alone->forward(data.x * 2), data.y)).backward();
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DistributedDataParallel ddp(net, comm, options_for(kModes[0]));
    const Data mine = data.share(comm);
    const torch::Tensor first = mse(ddp.forward(mine.x), mine.y);
    const torch::Tensor second = 3 * mse(ddp.forward(mine.x * 2), mine.y);
    first.backward();
    second.backward();
    EXPECT_TRUE(close(gradients(*net), gradients(*alone)));
  });
}

TEST(Ddp, AModuleCalledTwiceInOneGraph) {
  const Data data = draw(40);
  const auto loss_of = [](auto& net, const Data& d) { return mse(net.forward(d.x) + net.forward(-d.x), d.y); };
  const auto alone = seeded<NetImpl>(1);
  loss_of(*alone, data).backward();
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DistributedDataParallel ddp(net, comm, options_for(kModes[0]));
    loss_of(ddp, data.share(comm)).backward();
    EXPECT_TRUE(close(gradients(*net), gradients(*alone)));
  });
}

// --- models that differ ---

TEST(Ddp, DifferentModelsAreRefusedOnAllRanksWithTheFirstDifference) {
  std::atomic<int> told = 0;
  try {
    thread_world(3, [&](Communicator& comm) {
      try {
        DistributedDataParallel ddp(seeded<NetImpl>(1, comm.rank() == 2 ? kDim + 1 : kDim), comm);
      } catch (const Mismatch& error) {
        EXPECT_THAT(error.what(), HasSubstr("first.weight: float [12, 12]; rank 2 has parameter first.weight"));
        ++told;
        throw;
      }
    });
    FAIL();
  } catch (const Error&) {
  }
  EXPECT_EQ(told, 3);
}

TEST(Ddp, AFrozenLayerOnOneRankOnlyIsADifferentModel) {
  EXPECT_THROW(thread_world(2,
                            [&](Communicator& comm) {
                              const auto net = seeded<NetImpl>(1);
                              if (comm.rank() == 1) net->first->bias.requires_grad_(false);
                              DistributedDataParallel ddp(net, comm);
                            }),
               Mismatch);
}

}  // namespace
}  // namespace lockstep
