// Gradients that backward writes into their places in the buckets, and everything that may get into its way: tensors
// that somebody keeps, allocations that look like a gradient and are none, gradients that share their memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "lockstep/base/cpu.h"
#include "lockstep/optimizer.h"
#include "nets.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;

// The batch is as large as the layers are wide, so the gradient of an activation has the size of a weight.
constexpr std::int64_t kWide = 32;

std::size_t bytes_of(const torch::nn::Module& module) {
  std::size_t bytes = 0;
  for (const torch::Tensor& parameter : module.parameters()) bytes += parameter.nbytes();
  return bytes;
}

DdpOptions options_for(bool sharded) {
  DdpOptions options = small_buckets();
  options.sharded = sharded;
  return options;
}

// What zero_grad() does since libtorch 2.0; before, it kept the gradients and filled them with zeros.
void drop_gradients(torch::optim::Optimizer& optimizer) {
  for (auto& group : optimizer.param_groups())
    for (torch::Tensor& parameter : group.params()) parameter.mutable_grad().reset();
}

void step_with(torch::optim::Optimizer& optimizer, const Loss& loss) {
  drop_gradients(optimizer);
  loss().backward();
  optimizer.step();
}

TEST(Born, AfterTheFirstStepNothingIsCopied) {
  const Data data = draw(30);
  const auto want = trained_alone(data, 5);
  for (const int ranks : {1, 2, 3})
    for (const bool sharded : {false, true})
      thread_world(ranks, [&](Communicator& comm) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, sharded " << sharded);
        const auto net = seeded<NetImpl>(1);
        DistributedDataParallel ddp(net, comm, options_for(sharded));
        const auto optimizer = sgd()(ddp.parameters());
        const Data mine = data.share(comm);
        for (int step = 0; step < 5; ++step) {
          step_with(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
          EXPECT_EQ(ddp.statistics().copied_bytes, step == 0 ? bytes_of(*net) : 0) << "step " << step;
        }
        EXPECT_EQ(ddp.statistics().kept_gradients, 0);
        ddp.sync();
        EXPECT_TRUE(close(copies(*net), want));
        EXPECT_TRUE(same_everywhere(comm, *net));
      });
}

TEST(Born, MicrobatchesAreAddedToWhatWasBornInItsPlace) {
  const Data data = draw(24);
  const auto want = trained_alone(data, 4);
  for (const bool sharded : {false, true})
    thread_world(2, [&](Communicator& comm) {
      const auto net = seeded<NetImpl>(1);
      DistributedDataParallel ddp(net, comm, options_for(sharded));
      const auto optimizer = sgd()(ddp.parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 4; ++step) {
        drop_gradients(*optimizer);
        {
          const auto guard = ddp.no_sync();
          (mse(ddp.forward(mine.rows(0, 6).x), mine.rows(0, 6).y) / 2).backward();
        }
        (mse(ddp.forward(mine.rows(6, 12).x), mine.rows(6, 12).y) / 2).backward();
        if (step > 0) {
          EXPECT_EQ(ddp.statistics().copied_bytes, 0);
        }
        optimizer->step();
      }
      ddp.sync();
      EXPECT_TRUE(close(copies(*net), want));
    });
}

TEST(Born, GradientsThatAreKeptDoNotChange) {
  constexpr int kSteps = 100;
  const Data data = draw(20);
  const auto want = trained_alone(data, kSteps, sgd(0.001));
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DistributedDataParallel ddp(net, comm, small_buckets());
    const auto optimizer = sgd(0.001)(ddp.parameters());
    const Data mine = data.share(comm);
    std::vector<torch::Tensor> kept;
    std::vector<torch::Tensor> values;
    for (int step = 0; step < kSteps; ++step) {
      step_with(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
      for (const torch::Tensor& gradient : gradients(*net)) {
        kept.push_back(step % 2 == 0 ? gradient : gradient.view(-1));  // a view keeps the memory as well
        values.push_back(kept.back().clone());
      }
    }
    for (std::size_t i = 0; i < kept.size(); ++i) ASSERT_TRUE(torch::equal(kept[i], values[i])) << i;
    EXPECT_EQ(ddp.statistics().copied_bytes, 0);
    EXPECT_EQ(ddp.statistics().kept_gradients, (kSteps - 1) * net->parameters().size());
    EXPECT_TRUE(close(copies(*net), want));
  });
}

TEST(Born, GradientsOfBlocksThatAreKeptDoNotChange) {
  const Data data = draw(20);
  for (const int mode : {0, 1, 2})  // flat, sharded, fused
    thread_world(2, [&](Communicator& comm) {
      DdpOptions options = options_for(mode > 0);
      options.flat = true;
      options.fused_update = mode == 2;
      DistributedDataParallel ddp(seeded<NetImpl>(1), comm, options);
      const auto optimizer = with<SGD>(torch::optim::SGDOptions(0.01))(ddp.parameters());
      const Data mine = data.share(comm);
      std::vector<torch::Tensor> kept, values;
      for (int step = 0; step < 10; ++step) {
        drop_gradients(*optimizer);
        mse(ddp.forward(mine.x), mine.y).backward();
        ddp.average_gradients();
        for (const torch::Tensor& block : ddp.parameters()) {
          kept.push_back(step % 2 == 0 ? block.grad() : block.grad().view({-1, 1}));
          values.push_back(kept.back().clone());
        }
        optimizer->step();
      }
      for (std::size_t i = 0; i < kept.size(); ++i) ASSERT_TRUE(torch::equal(kept[i], values[i])) << mode << ": " << i;
      EXPECT_EQ(ddp.statistics().kept_gradients, 9 * ddp.parameters().size());
    });
}

// Two models whose outputs one backward reaches, of which rank 0 leaves out a parameter of the first. No rank may wait
// for the other in the middle of this backward.
TEST(Born, TwoModelsInOneBackwardDoNotWaitForEachOther) {
  const Data data = draw(20);
  comm::Options impatient;
  impatient.timeout = std::chrono::seconds(10);
  for (const Overlap overlap : {Overlap::off, Overlap::on})
    thread_world(
        2,
        [&](Communicator& comm) {
          DdpOptions options = small_buckets();
          options.overlap = overlap;
          DistributedDataParallel second(seeded<NetImpl>(2), comm, options);
          options.allow_unused = true;
          DistributedDataParallel first(seeded<NetImpl>(1), comm, options);
          const Data mine = data.share(comm);
          for (int step = 0; step < 4; ++step) {
            torch::Tensor one = first.forward(mine.x);
            if (comm.rank() == 0) one = first->last->forward(torch::relu(first->first->forward(mine.x)));
            (mse(one, mine.y) + mse(second.forward(mine.x), mine.y)).backward();
          }
        },
        {}, impatient);
}

// The callbacks of a backward that throws are dropped. The next one begins anew, also without a forward in between.
TEST(Born, ABackwardAfterOneThatThrewMeetsTheOtherRanks) {
  const Data data = draw(40);
  const auto want = trained_alone(data, 1);
  thread_world(2, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1);
    DistributedDataParallel ddp(net, comm, options_for(true));
    const auto optimizer = sgd()(ddp.parameters());
    const Data mine = data.share(comm);
    torch::Tensor thrown = ddp.forward(mine.x);
    thrown.register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
      if (gradient.defined()) throw std::runtime_error("a hook that fails");
      return gradient;
    });
    const torch::Tensor first = mse(ddp.forward(mine.x), mine.y);
    const torch::Tensor second = mse(ddp.forward(mine.x), mine.y);
    EXPECT_THROW(mse(thrown, mine.y).backward(), std::runtime_error);
    first.backward();
    optimizer->step();
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    second.backward();  // waits for the step of rank 1
    ddp.sync();
    EXPECT_TRUE(close(copies(*net), want));
  });
}

TEST(Born, AGradientOutlivesItsModel) {
  const Data data = draw(20);
  thread_world(2, [&](Communicator& comm) {
    torch::Tensor gradient;
    torch::Tensor values;
    {
      DistributedDataParallel ddp(seeded<NetImpl>(1), comm, small_buckets());
      const auto optimizer = sgd()(ddp.parameters());
      const Data mine = data.share(comm);
      for (int step = 0; step < 3; ++step) step_with(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
      gradient = ddp.module().second->weight.grad();
      values = gradient.clone();
    }
    const torch::Tensor other = torch::full({kDim, kDim}, 7.0F);
    EXPECT_TRUE(torch::equal(gradient, values));
  });
}

// Every change of the batch breaks what the last backward has taught. What was lent to the wrong tensor is somebody's
// value, and some are kept beyond the end of backward.
TEST(Born, AWrongGuessChangesNoNumber) {
  const auto train = [](NetImpl& net, const std::function<torch::Tensor(const torch::Tensor&)>& forward,
                        torch::optim::Optimizer& optimizer, const std::function<Data(const Data&)>& share,
                        const std::function<torch::Tensor&(int)>& keep) {
    for (int step = 0; step < 12; ++step) {
      const Data mine = share(draw(step % 3 == 0 ? 2 * kWide : 8, 100 + static_cast<std::uint64_t>(step), kWide));
      drop_gradients(optimizer);
      const torch::Tensor x = mine.x.clone().requires_grad_(true);
      const torch::Tensor loss = mse(forward(x), mine.y);
      keep(step) = x;
      loss.backward();
      optimizer.step();
    }
    return copies(net);
  };
  const auto alone = seeded<NetImpl>(1, kWide);
  const auto optimizer = sgd(0.01)(alone->parameters());
  torch::Tensor nobody;
  const auto want = train(
      *alone, [&](const torch::Tensor& x) { return alone->forward(x); }, *optimizer,
      [](const Data& all) { return all; }, [&](int) -> torch::Tensor& { return nobody; });
  for (const bool sharded : {false, true})
    for (const bool keeps : {false, true})
      thread_world(2, [&](Communicator& comm) {
        SCOPED_TRACE(testing::Message() << "sharded " << sharded << ", keeps " << keeps);
        const auto net = seeded<NetImpl>(1, kWide);
        DistributedDataParallel ddp(net, comm, options_for(sharded));
        const auto mine = sgd(0.01)(ddp.parameters());
        std::vector<torch::Tensor> kept(12);
        std::vector<torch::Tensor> values;
        torch::Tensor last;
        train(
            *net,
            [&](const torch::Tensor& x) {
              values.clear();
              for (const torch::Tensor& one : kept) values.push_back(one.defined() ? one.grad().clone() : one);
              return ddp.forward(x);
            },
            *mine, [&](const Data& all) { return all.share(comm); },
            [&](int step) -> torch::Tensor& { return keeps ? kept[static_cast<std::size_t>(step)] : last; });
        for (std::size_t i = 0; i < kept.size(); ++i)
          if (kept[i].defined() && values[i].defined()) {
            EXPECT_TRUE(torch::equal(kept[i].grad(), values[i])) << i;
          }
        ddp.sync();
        EXPECT_TRUE(close(copies(*net), want));
        EXPECT_TRUE(same_everywhere(comm, *net));
      });
}

// The gradients of a and b are two views of one memory, as libtorch hands them over.
TEST(Born, GradientsThatShareTheirMemory) {
  struct Shared : torch::nn::Module {
    Shared() {
      a = register_parameter("a", torch::randn({kWide, 8}));
      b = register_parameter("b", torch::randn({kWide, 8}));
    }
    torch::Tensor forward(const torch::Tensor& x) { return (a.view({8, -1}) + b.view({8, -1})).matmul(x).pow(2); }
    torch::Tensor a, b;
  };
  const torch::Tensor x = draw(kWide, 3, 4).x;
  for (const bool sharded : {false, true})
    thread_world(2, [&](Communicator& comm) {
      const auto module = seeded<Shared>(1);
      const auto alone = seeded<Shared>(1);
      DistributedDataParallel ddp(module, comm, options_for(sharded));
      const auto mine = sgd(0.001)(ddp.parameters());
      const auto theirs = sgd(0.001)(alone->parameters());
      for (int step = 0; step < 4; ++step) {
        step_with(*mine, [&] { return ddp.forward(x * (comm.rank() + 1)).mean(); });
        drop_gradients(*theirs);
        ((alone->forward(x).mean() + alone->forward(x * 2).mean()) / 2).backward();
        theirs->step();
      }
      ddp.sync();
      EXPECT_TRUE(close(copies(*module), copies(*alone)));
    });
}

// libtorch can allocate memory of which it keeps only the address, as oneDNN's convolutions do for their scratch
// memory. A wrong guess may lend a place to such an allocation.
TEST(Born, APlaceMayBeFreedByItsAddress) {
  const Data data = draw(20, 7, kWide);
  const std::size_t bytes = kWide * kWide * sizeof(float);
  thread_world(1, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1, kWide);
    DistributedDataParallel ddp(net, comm, small_buckets());
    const auto optimizer = sgd()(ddp.parameters());
    void* raw = nullptr;
    bool takes = false;
    net->last->weight.register_hook([&](const torch::Tensor& gradient) {
      if (takes) raw = c10::GetAllocator(at::kCPU)->raw_allocate(bytes);
      return gradient;
    });
    for (int step = 0; step < 4; ++step) {
      takes = step == 2;
      step_with(*optimizer, [&] { return mse(ddp.forward(data.x), data.y); });
      EXPECT_EQ(ddp.statistics().copied_bytes == 0, step == 1) << step;
      if (takes) {
        EXPECT_TRUE(raw != nullptr);
        c10::GetAllocator(at::kCPU)->raw_deallocate(raw);
      }
    }
    void* own = c10::GetAllocator(at::kCPU)->raw_allocate(bytes);
    c10::GetAllocator(at::kCPU)->raw_deallocate(own);
  });
}

TEST(Born, WhatAThrownBackwardLeavesBehindServesNobodyElse) {
  const Data data = draw(20, 7, kWide);
  thread_world(1, [&](Communicator& comm) {
    const auto net = seeded<NetImpl>(1, kWide);
    DistributedDataParallel ddp(net, comm, small_buckets());
    const auto optimizer = sgd()(ddp.parameters());
    for (int step = 0; step < 3; ++step) step_with(*optimizer, [&] { return mse(ddp.forward(data.x), data.y); });
    drop_gradients(*optimizer);
    net->first->weight.register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
      if (gradient.defined()) throw std::runtime_error("a hook that fails");
      return gradient;
    });
    EXPECT_THROW(mse(ddp.forward(data.x), data.y).backward(), std::runtime_error);
    std::vector<torch::Tensor> own;
    for (int i = 0; i < 20; ++i) own.push_back(torch::full({kWide, kWide}, static_cast<float>(i)));
    for (const torch::Tensor& one : own) EXPECT_FALSE(ddp.communicator().in_arena(one.data_ptr()));
  });
}

// On one host the ranks' own cores move the bytes, through shared memory as well as through sockets.
TEST(Born, OverlapNeedsAFreeCore) {
  for (const char* transport : {"shm", "tcp"})
    for (const int ranks : {2, 3}) {
      transport::Options options;
      options.kind = parse_transport(transport);
      thread_world(
          ranks,
          [&](Communicator& comm) {
            DistributedDataParallel ddp(seeded<NetImpl>(1), comm);
            EXPECT_THAT(ddp.layout(), HasSubstr(ranks < allowed_cores() ? "overlap: on" : "overlap: off"));
          },
          options);
    }
}

TEST(Born, OverlapChangesNoBit) {
  const Data data = draw(40);
  for (const bool sharded : {false, true}) {
    std::vector<std::vector<torch::Tensor>> ends;
    for (const Overlap overlap : {Overlap::on, Overlap::off, Overlap::automatic})
      thread_world(2, [&](Communicator& comm) {
        const auto net = seeded<NetImpl>(1);
        DdpOptions options = options_for(sharded);
        options.overlap = overlap;
        DistributedDataParallel ddp(net, comm, options);
        if (overlap != Overlap::automatic) {
          EXPECT_THAT(ddp.layout(), HasSubstr(overlap == Overlap::on ? "overlap: on" : "overlap: off"));
        }
        const auto optimizer = sgd()(ddp.parameters());
        const Data mine = data.share(comm);
        for (int step = 0; step < 5; ++step) step_with(*optimizer, [&] { return mse(ddp.forward(mine.x), mine.y); });
        ddp.sync();
        EXPECT_TRUE(same_everywhere(comm, *net));
        if (comm.rank() == 0) ends.push_back(copies(*net));
      });
    EXPECT_EQ(distance(ends[0], ends[1]), 0);
    EXPECT_EQ(distance(ends[0], ends[2]), 0);
  }
}

}  // namespace
}  // namespace lockstep
