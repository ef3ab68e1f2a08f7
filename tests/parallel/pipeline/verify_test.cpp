#include "lockstep/parallel/pipeline/schedule/verify.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "lockstep/parallel/pipeline/schedule/csv.h"
#include "lockstep/parallel/pipeline/schedule/lower.h"

namespace lockstep::pipeline {
namespace {

using testing::ElementsAre;

TEST(PipelineLower, SendsAfterAndReceivesBefore) {
  EXPECT_EQ(to_csv(lower(make_schedule("1f1b", 2, 2))),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  // The gradient of the input goes out before the gradients of the weights are made.
  EXPECT_EQ(to_csv(lower(make_schedule("zb-h1", 2, 1))),
            "0F0,0SEND_F0,0RECV_B0,0I0,0W0\n1RECV_F0,1F0,1I0,1SEND_B0,1W0\n");
}

TEST(PipelineLower, StagesOfOneRankExchangeNothing) {
  const Schedule schedule = from_csv("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n", "blocks");
  EXPECT_EQ(to_csv(lower(schedule)), "0F0,1F0,1SEND_F0,1RECV_B0,1B0,0B0\n2RECV_F0,2F0,3F0,3B0,2B0,2SEND_B0\n");
  EXPECT_EQ(verify(schedule).prediction.messages, 2);
  EXPECT_EQ(verify(make_schedule("interleaved", 1, 4, 3)).prediction.messages, 0);
}

TEST(PipelineLower, TwiceIsOnce) {
  const Schedule once = lower(make_schedule("interleaved", 3, 4));
  EXPECT_EQ(lower(once), once);
  EXPECT_TRUE(is_lowered(once));
  EXPECT_DOUBLE_EQ(verify(once).prediction.bubble, verify(make_schedule("interleaved", 3, 4)).prediction.bubble);
}

// As PyTorch's lists are: a receive says only from where on the message may arrive.
Schedule with_receives_first(const Schedule& schedule) {
  Schedule posted = lower(schedule);
  for (auto& list : posted.actions)
    std::stable_partition(list.begin(), list.end(), [](const Action& action) { return is_recv(action.kind); });
  return posted;
}

TEST(PipelineLower, AReceiveIsAPostAndItsUseWaits) {
  for (const std::string& name : schedule_names())
    for (const int ranks : {2, 3, 4})
      for (const int microbatches : {1, 4, 7}) {
        const Schedule plain = make_schedule(name, ranks, microbatches);
        const Schedule posted = with_receives_first(plain);
        EXPECT_EQ(examine(posted).problem, "") << name;
        EXPECT_EQ(lower(posted), lower(plain)) << name;
        EXPECT_DOUBLE_EQ(examine(posted).prediction.makespan, verify(plain).prediction.makespan) << name;
      }
}

// A send that comes later than it could is the file's choice.
TEST(PipelineLower, SendsStayWhereTheFileHasThem) {
  const Schedule late = from_csv(
      "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n"
      "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
      "late");
  EXPECT_EQ(to_csv(lower(late)),
            "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  EXPECT_DOUBLE_EQ(verify(late).prediction.makespan, 2 + 3 + 3 + 2);
}

// Large enough to run into the test's time limit if it takes more than linear time.
TEST(PipelineVerify, TakesLinearTime) {
  constexpr int kRanks = 60'000;
  const Prediction prediction = verify(make_schedule("naive", kRanks, 5)).prediction;
  EXPECT_DOUBLE_EQ(prediction.makespan, 5.0 * 3 * kRanks);
}

TEST(PipelineVerify, BlockingSendsDeadlockIn1F1BAndTheCycleIsShown) {
  const Verdict verdict = verify(make_schedule("1f1b", 2, 4));
  EXPECT_EQ(verdict.problem, "");
  EXPECT_TRUE(verdict.cycle.empty());
  EXPECT_EQ(describe(verdict.blocking_cycle),
            "rank 0 at step 3 (0SEND_F1) waits for 1RECV_F1, step 4 of rank 1; "
            "rank 1 at step 3 (1SEND_B0) waits for 0RECV_B0, step 4 of rank 0");
  // The steps are those of the lowered list.
  for (const Wait& wait : verdict.blocking_cycle) {
    EXPECT_EQ(verdict.lowered.actions[static_cast<std::size_t>(wait.rank)][static_cast<std::size_t>(wait.step)],
              wait.action);
    EXPECT_EQ(verdict.lowered.actions[static_cast<std::size_t>(wait.peer)][static_cast<std::size_t>(wait.its_step)],
              other_end(wait.action));
  }
}

// A receive that comes before a send can make blocking sends work: with them the list's own order counts.
TEST(PipelineVerify, BlockingSendsWorkInAnOrderMadeForThem) {
  const Verdict verdict =
      verify(from_csv("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0F2,0SEND_F2,0RECV_B1,0B1,0RECV_B2,0B2\n"
                      "1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1RECV_F2,1SEND_B1,1F2,1B2,1SEND_B2\n",
                      "ordered"));
  EXPECT_TRUE(verdict.blocking_cycle.empty()) << describe(verdict.blocking_cycle);
}

TEST(PipelineVerify, WhoDeadlocksWithBlockingSendsAndWhoDoesNot) {
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const int microbatches : {1, 2, 4, 8}) {
      const auto deadlocks = [&](const char* name) {
        return !verify(make_schedule(name, ranks, microbatches)).blocking_cycle.empty();
      };
      const bool something_overlaps = ranks > 1 && microbatches > 1;
      EXPECT_FALSE(deadlocks("naive"));
      EXPECT_FALSE(deadlocks("gpipe"));
      EXPECT_EQ(deadlocks("1f1b"), something_overlaps) << ranks << " ranks, " << microbatches << " microbatches";
      EXPECT_EQ(deadlocks("zb-h1"), something_overlaps) << ranks << " ranks, " << microbatches << " microbatches";
    }
}

TEST(PipelineVerify, ACycleOfBlockingSendsGoesAllRound) {
  // With two stages a rank, activations go round the ring, and everybody sends.
  const auto cycle = verify(make_schedule("interleaved", 4, 8)).blocking_cycle;
  ASSERT_EQ(cycle.size(), 4U);
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    EXPECT_EQ(cycle[i].action.kind, Kind::SEND_F);
    EXPECT_EQ(cycle[i].peer, cycle[(i + 1) % cycle.size()].rank);
  }
}

TEST(PipelineVerify, CrossedReceivesWaitOnlyForBlockingSends) {
  // Rank 1 takes microbatch 1 first.
  const Verdict verdict = verify(from_csv("0F0,0F1,0B1,0B0\n1F1,1F0,1B1,1B0\n", "crossed"));
  EXPECT_EQ(describe(verdict.blocking_cycle),
            "rank 0 at step 1 (0SEND_F0) waits for 1RECV_F0, step 2 of rank 1; "
            "rank 1 at step 0 (1RECV_F1) waits for 0SEND_F1, step 3 of rank 0");
}

TEST(PipelineVerify, TimesAreCounted) {
  // F = 2, B = 7 on two ranks, one microbatch: 2 + 2 + 7 + 7.
  const Prediction one = verify(make_schedule("gpipe", 2, 1), Times{2, 3, 4}).prediction;
  EXPECT_DOUBLE_EQ(one.makespan, 18);
  EXPECT_THAT(one.busy, ElementsAre(9, 9));
  EXPECT_DOUBLE_EQ(one.bubble, 0.5);
  // Split, the first stage's backward starts 4 earlier, and the last W hides.
  EXPECT_DOUBLE_EQ(verify(make_schedule("zb-h1", 2, 1), Times{2, 3, 4}).prediction.makespan, 2 + 2 + 3 + 3 + 4);
}

TEST(PipelineVerify, EachStageMayHaveItsOwnTimes) {
  // One microbatch on two ranks: 1 + 10 + 20 + 2.
  const StageTimes times({{1, 1, 1}, {10, 10, 10}});
  const Prediction one = verify(make_schedule("gpipe", 2, 1), times).prediction;
  EXPECT_DOUBLE_EQ(one.makespan, 33);
  EXPECT_THAT(one.busy, ElementsAre(3, 30));
}

TEST(PipelineVerify, TheTimelineIsInOrderAndNobodyDoesTwoThings) {
  for (const std::string& name : schedule_names()) {
    const Verdict verdict = verify(make_schedule(name, 4, 8), Times{1, 2, 1.5});
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const auto& line = verdict.prediction.timeline[rank];
      ASSERT_EQ(line.size(), verdict.lowered.actions[rank].size());
      double clock = 0;
      for (std::size_t i = 0; i < line.size(); ++i) {
        EXPECT_EQ(line[i].action, verdict.lowered.actions[rank][i]);
        EXPECT_GE(line[i].begin, clock);
        EXPECT_GE(line[i].end, line[i].begin);
        clock = line[i].end;
      }
      EXPECT_LE(clock, verdict.prediction.makespan);
    }
  }
}

TEST(PipelineVerify, NoIdleTimeByRounding) {
  EXPECT_EQ(verify(make_schedule("gpipe", 1, 100), Times{0.1, 0.2, 0.3}).prediction.bubble, 0);
}

TEST(PipelineVerify, ABackwardInWholeAndOneInPartsMayMix) {
  const Prediction prediction = verify(from_csv("0F0,0F1,0B0,0I1,0W1\n1F0,1I0,1F1,1B1,1W0\n", "mixed")).prediction;
  EXPECT_THAT(prediction.peak_activations, ElementsAre(2, 2));
  EXPECT_EQ(prediction.messages, 4);
}

}  // namespace
}  // namespace lockstep::pipeline
