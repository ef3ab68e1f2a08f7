// Where the time went, from timelines that are made by hand.
#include "lockstep/train/utilisation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/parallel/pipeline/schedule/verify.h"

namespace lockstep::train {
namespace {

using pipeline::Kind;
using pipeline::Moment;
using testing::ElementsAre;

constexpr double kClose = 1e-6;
constexpr double kOtherMs = 4;  // of a step that the list of actions, averaging and optimizer do not account for

Clock::time_point at(double ms) {
  return Clock::time_point(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(1000 + ms / 1000)));
}

// `factor`: how much longer than usual the step takes.
PipelineRecord::Step step(std::vector<Moment> moments, double factor, double averaging_ms, double optimizer_ms) {
  const auto began = moments.front().began, ended = moments.back().ended;
  const double listed = std::chrono::duration<double>(ended - began).count();
  const double seconds = listed + factor * (averaging_ms + optimizer_ms + kOtherMs) / 1000;
  return {{std::move(moments), began, ended}, factor * averaging_ms / 1000, factor * optimizer_ms / 1000, 0, seconds};
}

// gpipe, 2 stages, 1 microbatch. Times grow with `factor`, and begin at `start`.
PipelineRecord record_of(Rank position, const std::vector<double>& factors) {
  PipelineRecord record;
  record.lowered = pipeline::verify(pipeline::make_schedule("gpipe", 2, 1)).lowered;
  record.peak_activations = 3 + position;
  double start = 0;
  for (const double f : factors) {
    const auto t = [&](double ms) { return at(start + f * ms); };
    if (position == 0)
      record.steps.push_back(step({{{0, Kind::F, 0}, t(0), t(10)},
                                   {{0, Kind::SEND_F, 0}, t(10), t(11)},
                                   {{0, Kind::RECV_B, 0}, t(11), t(33)},
                                   {{0, Kind::B, 0}, t(33), t(53)}},
                                  f, 1, 2));
    else  // 100 ms early
      record.steps.push_back(step({{{1, Kind::RECV_F, 0}, at(start - 100), t(12)},
                                   {{1, Kind::F, 0}, t(12), t(20)},
                                   {{1, Kind::B, 0}, t(20), t(30)},
                                   {{1, Kind::SEND_B, 0}, t(30), t(31)}},
                                  f, 3, 4));
    start += 1000;
  }
  return record;
}

Result gathered(int ranks, const std::vector<std::vector<double>>& factors_of_replicas, const Result& before = {},
                std::size_t timed = 100) {
  Result result = before;
  thread_world(ranks, [&](Communicator& comm) {
    const PipelineRecord mine =
        record_of(comm.rank() % 2, factors_of_replicas[static_cast<std::size_t>(comm.rank() / 2)]);
    Result here = before;
    gather_pipeline(mine, timed, comm, here);
    if (comm.rank() == 0)
      result = here;
    else
      EXPECT_FALSE(here.pipeline);
  });
  return result;
}

TEST(GatherPipeline, OneStep) {
  const Result result = gathered(2, {{1}});
  ASSERT_TRUE(result.pipeline);
  const PipelineResult& p = *result.pipeline;
  ASSERT_EQ(result.shares.size(), 2U);
  // Rank 0: 30 ms of passes and 2 of the optimizer; the send and what was left of the gradient's way, and 1 of
  // averaging; the rest of 53. Rank 1: 18 + 4, 2 + 1 + 3, 32.
  EXPECT_NEAR(result.shares[0].compute, 32.0 / 60, kClose);
  EXPECT_NEAR(result.shares[0].communication, 5.0 / 60, kClose);
  EXPECT_NEAR(result.shares[0].bubble, 19.0 / 60, kClose);
  EXPECT_NEAR(result.shares[1].compute, 22.0 / 64, kClose);
  EXPECT_NEAR(result.shares[1].communication, 6.0 / 64, kClose);
  EXPECT_NEAR(result.shares[1].bubble, 32.0 / 64, kClose);
  EXPECT_NEAR(result.phases.communication, 0.0055, kClose);
  EXPECT_NEAR(result.phases.exposed_communication, 0.0055, kClose);
  EXPECT_NEAR(result.phases.bubble, 0.0255, kClose);
  EXPECT_NEAR(result.phases.forward, 0.009, kClose);
  EXPECT_NEAR(result.phases.backward, 0.015, kClose);
  EXPECT_NEAR(result.phases.optimizer, 0.003, kClose);
  EXPECT_NEAR(result.phases.other, 0.004, kClose);
  EXPECT_NEAR(result.phases.step(), 0.062, kClose);  // the mean of 60 and 64 ms
  for (const Shares& shares : result.shares)
    EXPECT_NEAR(shares.compute + shares.communication + shares.bubble + shares.other, 1, kClose);

  EXPECT_EQ(p.schedule, "gpipe");
  EXPECT_EQ(p.all_stages, 2);
  EXPECT_EQ(p.messages, 2);
  EXPECT_NEAR(p.seconds_measured, 0.053, kClose);
  EXPECT_NEAR(p.bubble_measured, 1 - 48.0 / (2 * 53), kClose);
  ASSERT_EQ(p.times.size(), 2U);
  EXPECT_NEAR(p.times[0].forward, 0.010, kClose);
  EXPECT_NEAR(p.times[0].input, 0.010, kClose);
  EXPECT_NEAR(p.times[0].weight, 0.010, kClose);
  EXPECT_NEAR(p.times[1].forward, 0.008, kClose);
  EXPECT_NEAR(p.times[1].input, 0.005, kClose);
  EXPECT_NEAR(p.seconds_predicted, 0.048, kClose);
  EXPECT_NEAR(p.bubble_predicted, 0.5, kClose);
  EXPECT_THAT(p.peak_activations, ElementsAre(3, 4));
}

TEST(GatherPipeline, MediansOverSteps) {
  const Result result = gathered(2, {{1, 7, 2}});
  const PipelineResult& p = *result.pipeline;
  EXPECT_NEAR(p.seconds_measured, 2 * 0.053, kClose);
  EXPECT_NEAR(p.times[0].forward, 0.020, kClose);
  EXPECT_NEAR(p.bubble_measured, 1 - 48.0 / (2 * 53), kClose);
  EXPECT_NEAR(result.shares[0].compute, 32.0 / 60, kClose);  // the same in every step
  EXPECT_NEAR(result.phases.bubble, 0.0255 * 10 / 3, kClose);
}

TEST(GatherPipeline, OnlyTheLastStepsAreTimed) {
  const Result result = gathered(2, {{50, 1, 7, 2}}, {}, 3);
  EXPECT_NEAR(result.pipeline->seconds_measured, 2 * 0.053, kClose);
  EXPECT_NEAR(result.phases.bubble, 0.0255 * 10 / 3, kClose);
}

TEST(GatherPipeline, EachPipelineHasItsOwnMakespan) {
  // The second is three times as slow. Rank 2 is the first stage there.
  const Result result = gathered(4, {{1}, {3}});
  ASSERT_EQ(result.shares.size(), 4U);
  for (const std::size_t rank : {0U, 2U}) EXPECT_NEAR(result.shares[rank].bubble, 19.0 / 60, kClose) << rank;
  for (const std::size_t rank : {1U, 3U}) EXPECT_NEAR(result.shares[rank].bubble, 32.0 / 64, kClose) << rank;
  EXPECT_NEAR(result.phases.bubble, 0.0255 * 2, kClose);
  EXPECT_THAT(result.pipeline->peak_activations, ElementsAre(3, 4, 3, 4));
}

TEST(GatherPipeline, EmulatedTimesArePredictedFromWhatWasAskedFor) {
  Result before;
  before.config.pipeline.emulate = pipeline::Times{.forward = 1, .input = 2, .weight = 4};
  const Result result = gathered(2, {{1}}, before);
  EXPECT_NEAR(result.pipeline->seconds_predicted, 14, kClose);
  EXPECT_NEAR(result.pipeline->bubble_predicted, 0.5, kClose);
  EXPECT_NEAR(result.pipeline->seconds_measured, 0.053, kClose);
}

TEST(GatherPipeline, ASplitBackwardHasTimesOfItsParts) {
  PipelineRecord record;
  record.lowered = pipeline::verify(pipeline::make_schedule("zb-h1", 1, 1)).lowered;
  std::vector<Moment> moments;
  double now = 0;
  for (const pipeline::Action& action : record.lowered.actions[0]) {
    const double ms = action.kind == Kind::F ? 5 : action.kind == Kind::I ? 7 : 11;
    moments.push_back({action, at(now), at(now + ms)});
    now += ms;
  }
  record.steps.push_back(step(moments, 1, 0, 0));
  Result result;
  thread_world(1, [&](Communicator& comm) { gather_pipeline(record, 1, comm, result); });
  EXPECT_NEAR(result.pipeline->times[0].forward, 0.005, kClose);
  EXPECT_NEAR(result.pipeline->times[0].input, 0.007, kClose);
  EXPECT_NEAR(result.pipeline->times[0].weight, 0.011, kClose);
  EXPECT_NEAR(result.pipeline->bubble_measured, 0, kClose);
  EXPECT_NEAR(result.pipeline->bubble_predicted, 0, kClose);
}

TEST(GatherPipeline, NoStepsAreNoPipeline) { EXPECT_FALSE(gathered(2, {{}}).pipeline); }

}  // namespace
}  // namespace lockstep::train
