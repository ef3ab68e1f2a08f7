// Where the time of a step went.
#include "lockstep/parallel/pipeline/run/moments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nets.h"

namespace lockstep::pipeline {
namespace {

using namespace test;

TEST(Moments, OneAnActionInOrder) {
  const Schedule schedule = make_schedule("1f1b", 3, 4);
  const Trained trained = train_pipeline(mlp_task(), schedule, 3);
  const Schedule lowered = verify(schedule).lowered;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Timeline& timeline = trained.last[rank];
    ASSERT_EQ(timeline.moments.size(), lowered.actions[rank].size());
    Clock::time_point now = timeline.began;
    for (std::size_t i = 0; i < timeline.moments.size(); ++i) {
      EXPECT_EQ(timeline.moments[i].action, lowered.actions[rank][i]);
      EXPECT_LE(now, timeline.moments[i].began);
      EXPECT_LE(timeline.moments[i].began, timeline.moments[i].ended);
      now = timeline.moments[i].ended;
    }
    EXPECT_LE(now, timeline.ended);
  }
}

// --- timelines by hand, in milliseconds ---

Clock::time_point at(int ms) { return Clock::time_point(std::chrono::milliseconds(1000 + ms)); }

Timeline timeline(std::vector<Moment> moments) {
  const auto began = moments.front().began, ended = moments.back().ended;
  return {std::move(moments), began, ended};
}

void expect_ms(const Utilisation& got, double compute, double communication, double bubble) {
  EXPECT_NEAR(got.compute, compute / 1000, 1e-9);
  EXPECT_NEAR(got.communication, communication / 1000, 1e-9);
  EXPECT_NEAR(got.bubble, bubble / 1000, 1e-9);
}

TEST(Moments, UtilisationAddsUp) {
  // Rank 0: F from 0 to 10, send until 11. Rank 1 waits from 0 on, has it at 14, and computes until 34.
  const std::vector<Timeline> ranks{
      {{{{0, Kind::F, 0}, at(0), at(10)}, {{0, Kind::SEND_F, 0}, at(10), at(11)}}, at(0), at(11)},
      {{{{1, Kind::RECV_F, 0}, at(0), at(14)}, {{1, Kind::F, 0}, at(14), at(34)}}, at(0), at(34)}};
  const auto shares = utilisation(ranks);
  ASSERT_EQ(shares.size(), 2U);
  expect_ms(shares[0], 10, 1, 23);
  expect_ms(shares[1], 20, 4, 10);
}

TEST(Moments, WhoComesEarlyToAStepWaitsInTheOneBefore) {
  const std::vector<Timeline> ranks{
      timeline({{{0, Kind::F, 0}, at(0), at(10)}, {{0, Kind::SEND_F, 0}, at(10), at(11)}}),
      timeline({{{1, Kind::RECV_F, 0}, at(-500), at(12)}, {{1, Kind::F, 0}, at(12), at(20)}})};
  const auto shares = utilisation(ranks);
  expect_ms(shares[0], 10, 1, 9);
  expect_ms(shares[1], 8, 2, 10);
}

TEST(Moments, AMessageThatWasThereIsAllCommunication) {
  const std::vector<Timeline> ranks{timeline({{{0, Kind::F, 0}, at(0), at(5)}, {{0, Kind::SEND_F, 0}, at(5), at(6)}}),
                                    timeline({{{1, Kind::F, 7}, at(0), at(10)},
                                              {{1, Kind::RECV_F, 0}, at(10), at(13)},
                                              {{1, Kind::F, 0}, at(13), at(20)}})};
  expect_ms(utilisation(ranks)[1], 17, 3, 0);
}

TEST(Moments, AReceiveWhoseSendIsNotToBeFoundOrLaterThanItself) {
  // Messages are small: a receive may end, by the clocks, before its send began.
  const std::vector<Timeline> ranks{timeline({{{0, Kind::F, 0}, at(0), at(5)}, {{0, Kind::SEND_F, 0}, at(9), at(10)}}),
                                    timeline({{{1, Kind::RECV_F, 0}, at(0), at(8)},
                                              {{1, Kind::RECV_F, 1}, at(8), at(12)},
                                              {{1, Kind::F, 0}, at(12), at(20)}})};
  expect_ms(utilisation(ranks)[1], 8, 4, 8);
}

TEST(Moments, EveryKindOfBackwardIsComputeAndGradientsMeetTheirSends) {
  const std::vector<Timeline> ranks{timeline({{{0, Kind::F, 0}, at(0), at(2)},
                                              {{0, Kind::SEND_F, 0}, at(2), at(3)},
                                              {{0, Kind::RECV_B, 0}, at(3), at(14)},
                                              {{0, Kind::I, 0}, at(14), at(18)},
                                              {{0, Kind::W, 0}, at(18), at(19)}}),
                                    timeline({{{1, Kind::RECV_F, 0}, at(0), at(4)},
                                              {{1, Kind::F, 0}, at(4), at(6)},
                                              {{1, Kind::B, 0}, at(6), at(11)},
                                              {{1, Kind::SEND_B, 0}, at(11), at(13)}})};
  const auto shares = utilisation(ranks);
  expect_ms(shares[0], 7, 1 + 3, 8);  // RECV_B from 3: nobody had sent before 11
  expect_ms(shares[1], 7, 2 + 2, 8);
}

TEST(Moments, NoRanksAndABubbleThatIsNeverBelowNothing) {
  EXPECT_TRUE(utilisation({}).empty());
  // A send that goes on after the last compute is more than the makespan has.
  const auto shares =
      utilisation({timeline({{{0, Kind::F, 0}, at(0), at(10)}, {{0, Kind::SEND_F, 0}, at(10), at(30)}})});
  expect_ms(shares[0], 10, 20, 0);
}

}  // namespace
}  // namespace lockstep::pipeline
