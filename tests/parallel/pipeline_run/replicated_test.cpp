// Pipelines beside each other: a single process's losses and weights, and the same bits on all replicas.
#include "lockstep/parallel/pipeline/run/replicated.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>

#include <atomic>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/gradients.h"
#include "lockstep/tensor.h"
#include "replicas.h"

namespace lockstep::pipeline {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kSteps = 15;
constexpr std::size_t kSmall = 200;  // of 6 x 7 floats a layer: several buckets a stage

class EveryReplicated : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryReplicated, TrainsAsASingleProcess) {
  const Task task = mlp_task(13);
  const Trained alone = train_alone(task, kSteps);
  struct Grid {
    int stages, microbatches;
    std::vector<std::int64_t> rows;
  };
  for (const Grid& grid : {Grid{2, 4, {7, 6}}, Grid{2, 3, {5, 5, 3}}, Grid{3, 5, {7, 6}}}) {
    SCOPED_TRACE(fmt::format("{} x {}", grid.rows.size(), grid.stages));
    const Schedule schedule = make_schedule(GetParam(), grid.stages, grid.microbatches);
    for (const bool recompute : {false, true}) {
      const auto replicas = train_replicas(task, schedule, kSteps,
                                           {.rows = grid.rows, .recompute = recompute, .ddp = buckets_of(kSmall)});
      expect_same(replicas[0], alone);
      expect_same_bits(replicas);
    }
  }
}

TEST_P(EveryReplicated, MicrobatchesWithoutRows) {
  const Task task = mlp_task(13);
  const Schedule schedule = make_schedule(GetParam(), 2, 4);
  const auto replicas = train_replicas(task, schedule, kSteps, {.rows = {11, 2}, .ddp = buckets_of(kSmall)});
  expect_same(replicas[0], train_alone(task, kSteps));
  expect_same_bits(replicas);
}

// The stages of one pipeline drain while another pipeline is still before its last backward: who waited for the
// average in a backward would keep the gradient of its input from the stage before.
TEST_P(EveryReplicated, TheDrainDoesNotWaitForTheOtherPipeline) {
  const Task task = mlp_task(12);
  const Schedule schedule = make_schedule(GetParam(), 2, 3);
  std::atomic<int> drained = 0;
  bool in_time = false;
  run_world(4, [&](Communicator& world) {
    Replica mine(world, task, schedule, {.rows = {6, 6}, .ddp = buckets_of(kSmall)});
    for (int step = 0; step < 2; ++step) {
      const LossFunction right = mine.loss;
      const bool late = step == 1 && mine.number == 1 && mine.executor->has_last_stage();
      int losses = 0;
      if (late)
        mine.loss = [&, right](const Tensor& output, const Tensor& target) {
          if (++losses == schedule.microbatches) {  // its backward comes after this
            const Deadline by = Deadline::in(10s);
            while (drained < 2 && !by.passed()) std::this_thread::sleep_for(1ms);
            in_time = drained == 2;
          }
          return right(output, target);
        };
      mine.step();
      mine.loss = right;
      if (step == 1 && mine.number == 0) ++drained;
      mine.finish();
    }
  });
  EXPECT_TRUE(in_time);
}

INSTANTIATE_TEST_SUITE_P(Pipeline, EveryReplicated, ::testing::ValuesIn(schedule_names()), [](const auto& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Replicated, AnySizeOfBucketsAndTcp) {
  const Task task = mlp_task(12);
  const Trained alone = train_alone(task, kSteps);
  const Schedule schedule = make_schedule("1f1b", 2, 3);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1} << 20})
    for (const char* transport : {"shm", "tcp"}) {
      const auto replicas =
          train_replicas(task, schedule, kSteps, {.rows = {6, 6}, .ddp = buckets_of(bytes)}, transport);
      expect_same(replicas[0], alone);
      expect_same_bits(replicas);
    }
}

TEST(Replicated, ACnnCutInTwo) {
  const Task task = cnn_task();
  const auto replicas =
      train_replicas(task, make_schedule("zb-h1", 2, 2), kSteps, {.rows = {6, 4}, .ddp = buckets_of(kSmall)});
  expect_same(replicas[0], train_alone(task, kSteps));
  expect_same_bits(replicas);
}

TEST(Replicated, FlatParameters) {
  const Task task = mlp_task(12);
  DdpOptions flat = buckets_of(kSmall);
  flat.flat = true;
  const auto replicas = train_replicas(task, make_schedule("zb-h1", 2, 3), kSteps, {.rows = {6, 6}, .ddp = flat});
  expect_same(replicas[0], train_alone(task, kSteps));
  expect_same_bits(replicas);
}

// --- one stage on two ranks, by hand ---

Sequential two_layers() {
  return seeded([] { return Sequential(torch::nn::Linear(3, 4), torch::nn::Tanh(), torch::nn::Linear(4, 2)); });
}

Tensor input_of(Rank rank, int microbatch) {
  return seeded([] { return torch::randn({2, 3}); }, 100 + static_cast<std::uint64_t>(10 * rank + microbatch));
}

// Counts reductions, and makes them.
CommHook counting(int& count) {
  return [&count](Communicator& comm, GradientBucket& bucket) {
    ++count;
    return comm.all_reduce_async(as_buffer(bucket.flat()), ReduceOp::mean);
  };
}

TEST(Replicated, AveragesOnceAStepAndBeforeFinish) {
  // What each rank's microbatches give without anyone else.
  std::vector<std::vector<Tensor>> own(2);
  for (const Rank rank : {0, 1}) {
    const Sequential net = two_layers();
    for (int m = 0; m < 3; ++m) Sequential(net)->forward(input_of(rank, m)).backward(torch::ones({2, 2}));
    for (const Tensor& parameter : net->parameters()) own[static_cast<std::size_t>(rank)].push_back(parameter.grad());
  }
  for (const Backward way : {Backward::whole, Backward::split})
    run_world(2, [&](Communicator& comm) {
      Sequential net = two_layers();
      DdpOptions options = buckets_of(1);  // one for each of the 4 parameters
      int reductions = 0;
      options.hook = counting(reductions);
      ReplicatedStage stage(net, {}, 3, comm, options);
      for (int step = 1; step <= 3; ++step) {
        net->zero_grad();
        for (int m = 0; m < 3; ++m) stage.forward(m, input_of(comm.rank(), m), way, {});
        EXPECT_EQ(stage.live(), 3);
        // In an order of their own: the last backward counts, not the last microbatch.
        for (const int m : {2, 0, 1}) {
          EXPECT_EQ(reductions, 4 * (step - 1)) << "before the last backward";
          if (way == Backward::whole) {
            EXPECT_TRUE(stage.backward(m, torch::ones({2, 2})).defined());
            continue;
          }
          stage.input_gradient(m, torch::ones({2, 2}));
          EXPECT_EQ(reductions, 4 * (step - 1)) << "I has no gradients of weights";
          stage.weight_gradient(m);
        }
        EXPECT_EQ(stage.live(), 0);
        EXPECT_EQ(reductions, 4 * step) << "before finish()";
        stage.finish();
        stage.finish();
        EXPECT_EQ(reductions, 4 * step);
        for (std::size_t i = 0; i < 4; ++i)
          EXPECT_TRUE(close(net->parameters()[i].grad(), (own[0][i] + own[1][i]) / 2)) << i;
        EXPECT_EQ(stage.statistics().buckets.size(), 4U);
      }
    });
}

TEST(Replicated, ClearBeginsTheStepAnew) {
  run_world(2, [&](Communicator& comm) {
    const Sequential net = two_layers();
    DdpOptions options;
    int reductions = 0;
    options.hook = counting(reductions);
    ReplicatedStage stage(net, {}, 2, comm, options);
    stage.forward(0, input_of(0, 0), Backward::whole, {});
    stage.forward(1, input_of(0, 1), Backward::whole, {});
    stage.backward(0, torch::ones({2, 2}));
    stage.clear();
    EXPECT_EQ(stage.live(), 0);
    stage.forward(0, input_of(0, 0), Backward::whole, {});
    stage.forward(1, input_of(0, 1), Backward::whole, {});
    stage.backward(0, torch::ones({2, 2}));
    EXPECT_EQ(reductions, 0);
    stage.backward(1, torch::ones({2, 2}));
    EXPECT_EQ(reductions, 1);
    stage.finish();
  });
}

TEST(Replicated, StatisticsOfBatchNormAreTheFirstReplicasOnceAStep) {
  using torch::nn::BatchNorm1d;
  const auto make = [] { return seeded([] { return Sequential(BatchNorm1d(3)); }); };
  const auto mean_of = [](const Sequential& net) { return net->named_buffers()["0.running_mean"]; };
  run_world(3, [&](Communicator& comm) {
    const Sequential net = make();
    ReplicatedStage stage(net, {}, 2, comm);
    const Sequential first = make(), mine = make();
    for (int step = 0; step < 3; ++step) {
      // From the first replica's at the step's begin, on with what this rank sees itself.
      mean_of(mine).copy_(mean_of(first));
      for (int m = 0; m < 2; ++m) {
        stage.forward(m, input_of(comm.rank() + 3 * step, m), Backward::whole, {});
        Sequential(mine)->forward(input_of(comm.rank() + 3 * step, m));
        Sequential(first)->forward(input_of(3 * step, m));
        EXPECT_TRUE(torch::equal(mean_of(net), mean_of(mine))) << "step " << step << ", microbatch " << m;
      }
      for (int m = 0; m < 2; ++m) stage.backward(m, torch::ones({2, 3}));
      stage.finish();
    }
  });
}

TEST(Replicated, InferenceIsNoPartOfAStep) {
  run_world(2, [&](Communicator& comm) {
    const Sequential net = two_layers();
    ReplicatedStage stage(net, {}, 1, comm);
    stage.forward(0, input_of(0, 0), Backward::whole, {});
    const Tensor output = stage.infer(input_of(0, 1));
    EXPECT_FALSE(output.requires_grad());
    EXPECT_TRUE(torch::equal(output, Sequential(net)->forward(input_of(0, 1)).detach()));
    EXPECT_EQ(stage.live(), 1);
    stage.backward(0, torch::ones({2, 2}));
    stage.infer(input_of(0, 1));  // also before finish()
    stage.finish();
  });
}

TEST(Replicated, IsTheStageThatWasAskedFor) {
  run_world(2, [&](Communicator& comm) {
    int runs = 0;
    const torch::nn::Functional counted([&runs](const Tensor& x) {
      ++runs;
      return x * 2;
    });
    const Sequential net(torch::nn::Linear(3, 2), counted);
    ReplicatedStage stage(net, {.first = true, .recompute = true}, 1, comm);
    stage.forward(0, input_of(0, 0), Backward::whole, {});
    EXPECT_EQ(runs, 1);
    EXPECT_FALSE(stage.backward(0, torch::ones({2, 2})).defined());
    EXPECT_EQ(runs, 2);
    stage.finish();
  });
}

TEST(Replicated, AWorldOfOne) {
  run_world(1, [&](Communicator& comm) {
    const Sequential net = two_layers(), plain = two_layers();
    ReplicatedStage stage(net, {}, 1, comm);
    SequentialStage other(*plain);
    for (int step = 0; step < 2; ++step) {
      stage.forward(0, input_of(0, 0), Backward::whole, {});
      other.forward(0, input_of(0, 0), Backward::whole, {});
      EXPECT_TRUE(torch::equal(stage.backward(0, torch::ones({2, 2})), other.backward(0, torch::ones({2, 2}))));
      stage.finish();
    }
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(torch::equal(net->parameters()[i].grad(), plain->parameters()[i].grad()));
  });
}

TEST(Replicated, AStepWithoutFinishIsNamed) {
  const Task task = mlp_task(12);
  run_world(2, [&](Communicator& world) {
    Replica mine(world, task, make_schedule("1f1b", 1, 2), {.rows = {6, 6}});
    mine.step();
    EXPECT_THAT(
        [&] { mine.step(); },
        ThrowsMessage<UsageError>(AllOf(
            HasSubstr(fmt::format("rank {} computes the forward of microbatch 0 on stage 0 in step 1 (action 0, 0F0): ",
                                  world.rank())),
            HasSubstr("still under way"), HasSubstr("finish()"))));
    mine.finish();
    EXPECT_TRUE(mine.step().loss);
    mine.finish();
  });
}

TEST(Replicated, AnotherStageIsRefused) {
  run_world(2, [&](Communicator& comm) {
    const Sequential net(torch::nn::Linear(3, 4 + comm.rank()));
    EXPECT_THAT([&] { ReplicatedStage(net, {}, 1, comm); },
                ThrowsMessage<Mismatch>(HasSubstr("0.weight: float [4, 3]; rank 1 has parameter 0.weight")));
  });
}

}  // namespace
}  // namespace lockstep::pipeline
