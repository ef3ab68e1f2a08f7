// The pipeline against a single process: same losses, same weights, for every schedule.
#include "lockstep/parallel/pipeline/run/executor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/parallel/pipeline/schedule/csv.h"
#include "lockstep/parallel/pipeline/schedule/lower.h"
#include "nets.h"

namespace lockstep::pipeline {
namespace {

using namespace test;
using ::testing::Each;
using ::testing::Le;

constexpr int kSteps = 20;

TEST(Alone, TrainsEveryLayer) {  // or the comparisons would show nothing
  for (const Task& task : {mlp_task(), mlp_task(13, 16), cnn_task()}) {
    const Trained before = train_alone(task, 0);
    const Trained after = train_alone(task, kSteps);
    EXPECT_LT(after.losses.back(), 0.9 * after.losses.front());
    for (std::size_t i = 0; i < before.weights.size(); ++i)
      EXPECT_FALSE(close(after.weights[i].second, before.weights[i].second, 100 * kClose)) << before.weights[i].first;
  }
}

class EverySchedule : public ::testing::TestWithParam<std::string> {};

// 13 rows: microbatches of unequal size for all of these counts but 1.
TEST_P(EverySchedule, TrainsAsASingleProcess) {
  const Task task = mlp_task();
  const Trained alone = train_alone(task, kSteps);
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (const int microbatches : {1, 2, 4, 7, 8}) {
      SCOPED_TRACE(fmt::format("{} ranks, {} microbatches", ranks, microbatches));
      const Schedule schedule = make_schedule(GetParam(), ranks, microbatches);
      const Trained piped = train_pipeline(task, schedule, kSteps);
      expect_same(piped, alone);
      EXPECT_EQ(piped.peaks, verify(schedule).prediction.peak_activations);
    }
}

TEST_P(EverySchedule, OnEightRanks) {
  const Task task = mlp_task(13, 16);
  const Trained alone = train_alone(task, kSteps);
  for (const int microbatches : {1, 2, 4, 7, 8}) {
    SCOPED_TRACE(fmt::format("{} microbatches", microbatches));
    expect_same(train_pipeline(task, make_schedule(GetParam(), 8, microbatches), kSteps), alone);
  }
}

TEST_P(EverySchedule, WithACnnCutInTwo) {
  const Task task = cnn_task();
  const Trained alone = train_alone(task, kSteps);
  expect_same(train_pipeline(task, make_schedule(GetParam(), 2, 3), kSteps), alone);
  expect_same(train_pipeline(task, make_schedule(GetParam(), 2, 3), kSteps, /*recompute=*/true), alone);
}

TEST_P(EverySchedule, WithRecompute) {
  const Task task = mlp_task();
  const Schedule schedule = make_schedule(GetParam(), 3, 4);
  const Trained kept = train_pipeline(task, schedule, kSteps);
  const Trained again = train_pipeline(task, schedule, kSteps, /*recompute=*/true);
  EXPECT_EQ(again.losses, kept.losses);
  expect_same(again, kept);
}

INSTANTIATE_TEST_SUITE_P(Pipeline, EverySchedule, ::testing::ValuesIn(schedule_names()), [](const auto& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Executor, AllStagesOnOneRank) {
  // A user's own schedule: all stages on one rank, nothing to send.
  const Task task = mlp_task();
  Schedule schedule{.name = "own", .stages = 10, .ranks = 1, .microbatches = 2, .rank_of_stage = {}, .actions = {{}}};
  schedule.rank_of_stage.assign(10, 0);
  for (int m = 0; m < 2; ++m) {
    for (int s = 0; s < 10; ++s) schedule.actions[0].push_back({s, Kind::F, m});
    for (int s = 9; s >= 0; --s) schedule.actions[0].push_back({s, s % 2 == 0 ? Kind::B : Kind::I, m});
    for (int s = 1; s < 10; s += 2) schedule.actions[0].push_back({s, Kind::W, m});
  }
  expect_same(train_pipeline(task, schedule, kSteps), train_alone(task, kSteps));
}

// A list as PyTorch writes it: receives are posted long before they are needed, in another order.
TEST(Executor, ReceivesThatAreOnlyPosted) {
  const Task task = mlp_task();
  const Trained alone = train_alone(task, kSteps);
  for (const char* name : {"1f1b", "interleaved", "zbv"}) {
    Schedule posted = lower(make_schedule(name, 3, 4));
    for (auto& list : posted.actions) {
      const auto is_receive = [](const Action& action) { return is_recv(action.kind); };
      const auto end = std::stable_partition(list.begin(), list.end(), is_receive);
      std::reverse(list.begin(), end);
    }
    expect_same(train_pipeline(task, posted, kSteps), alone);
  }
}

// Pairs, FSDP's actions, and a V: rank r has stages r and 2p-1-r.
TEST(Executor, AFileOfPyTorch) {
  const Task task = mlp_task();
  const Schedule schedule = from_csv(
      "0UNSHARD,3UNSHARD,0F0,0F1,3F0,(0F2;3B0)OVERLAP_F_B,(3F1;0B0)OVERLAP_F_B,3B1,(3F2;0B1)OVERLAP_F_B,3I2,0B2,3W2,"
      "0REDUCE_GRAD,3REDUCE_GRAD\n"
      "1UNSHARD,2UNSHARD,1F0,2F0,1F1,2B0,(2F1;1B0)OVERLAP_F_B,(1F2;2B1)OVERLAP_F_B,(2F2;1B1)OVERLAP_F_B,2B2,1B2\n",
      "pairs");
  EXPECT_THAT(schedule.rank_of_stage, ::testing::ElementsAre(0, 1, 1, 0));
  expect_same(train_pipeline(task, schedule, kSteps), train_alone(task, kSteps));
}

TEST(Executor, PeakActivations) {
  const Task task = mlp_task();
  EXPECT_THAT(train_pipeline(task, make_schedule("gpipe", 3, 8), 2).peaks, Each(8));
  EXPECT_THAT(train_pipeline(task, make_schedule("1f1b", 3, 8), 2).peaks, Each(Le(3)));
  EXPECT_THAT(train_pipeline(task, make_schedule("zb-h1", 3, 8), 2).peaks, Each(Le(3)));
  EXPECT_THAT(train_pipeline(task, make_schedule("naive", 3, 8), 2).peaks, Each(1));
}

TEST(Executor, LargeActivations) {  // beyond what fits a message queue; both directions at once
  Task task = seeded([] {
    return Task{
        [] { return Sequential(torch::nn::Linear(4, 40'000), torch::nn::ReLU(), torch::nn::Linear(40'000, 2)); },
        torch::randn({16, 4}), torch::randn({16, 2}), mse, 0.001};
  });
  const Trained alone = train_alone(task, 3);
  for (const char* transport : {"shm", "tcp"})
    for (const char* name : {"1f1b", "zb-h1"})
      expect_same(train_pipeline(task, make_schedule(name, 2, 4), 3, /*recompute=*/false, transport), alone);
}

TEST(Executor, NewShapes) {
  const Task task = mlp_task(12);
  run_world(2, [&](Communicator& comm) {
    const Schedule schedule = make_schedule("1f1b", 2, 3);
    const Part part = part_of(task, schedule, comm.rank());
    Executor pipeline(comm, schedule, part.stages, task.loss);
    for (const std::int64_t rows : {12, 12, 7, 7}) {
      if (rows == 7) pipeline.new_shapes();
      const auto result =
          pipeline.step(cut_batch(task.inputs.slice(0, 0, rows), 3), cut_batch(task.targets.slice(0, 0, rows), 3));
      if (comm.rank() == 0) continue;
      const torch::NoGradGuard no_grad;
      const Tensor want =
          mse(seeded(task.make)->forward(task.inputs.slice(0, 0, rows)), task.targets.slice(0, 0, rows));
      EXPECT_TRUE(close(*result.loss, want.item<double>()));
    }
  });
}

// A message that arrives is not copied to a new place each time.
TEST(Buffers, AreUsedAgainWhenNobodyHoldsThem) {
  Buffers buffers;
  const Shape shape{{2, 3}, torch::kFloat32};
  Tensor first = buffers.take(shape);
  const void* place = first.data_ptr();
  const Tensor view = first[1];
  first.reset();
  EXPECT_NE(buffers.take(shape).data_ptr(), place);
  EXPECT_EQ(buffers.size(), 2U);
  const Tensor second = buffers.take(shape);
  EXPECT_EQ(buffers.size(), 2U);
  EXPECT_EQ(buffers.take({{3, 2}, torch::kFloat32}).size(0), 3);
  EXPECT_EQ(buffers.size(), 3U);
}

}  // namespace
}  // namespace lockstep::pipeline
