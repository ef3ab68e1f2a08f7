#include "lockstep/measure/winner.h"

#include <gmock/gmock.h>

#include "lockstep/measure/formulas.h"

namespace lockstep::measure {
namespace {

using testing::HasSubstr;
using testing::Not;

// As measured on 4 ranks, by the formulas.
Contender contender(Algorithm algorithm, double bytes, double microseconds) {
  const auto cost = all_reduce_cost(algorithm, 4, bytes);
  Contender one;
  one.algorithm = algorithm;
  one.microseconds = microseconds;
  one.messages = cost.messages;
  one.bytes = cost.bytes;
  one.messages_of_all = algorithm == Algorithm::tree ? 6 : 4 * cost.messages;
  one.steps = cost.steps;
  one.summed = cost.summed;
  return one;
}

TEST(Winner, WinsByBytesWhenItHasTheFewest) {
  const std::vector<Contender> all = {contender(Algorithm::tree, 1 << 20, 300),
                                      contender(Algorithm::ring, 1 << 20, 100)};
  EXPECT_EQ(winner(all).algorithm, Algorithm::ring);
  const std::string why = why_it_wins(all);
  EXPECT_THAT(why, HasSubstr("ring wins, 3.0 times as fast as tree."));
  EXPECT_THAT(why, HasSubstr("bytes sent by a rank (1.5M, others up to 2M)"));
  EXPECT_THAT(why, HasSubstr("At this size bytes cost more than steps."));
}

TEST(Winner, WinsByStepsWhenItHasTheFewest) {
  const std::string why = why_it_wins({contender(Algorithm::tree, 1024, 5), contender(Algorithm::ring, 1024, 10)});
  EXPECT_THAT(why, HasSubstr("tree wins, 2.0 times as fast as ring."));
  EXPECT_THAT(why, HasSubstr("steps (4, others up to 6)"));
  EXPECT_THAT(why, HasSubstr("At this size steps cost more than bytes."));
}

TEST(Winner, DirectSendsNothing) {
  const std::string why = why_it_wins({contender(Algorithm::direct, 1024, 1), contender(Algorithm::tree, 1024, 5),
                                       contender(Algorithm::ring, 1024, 10)});
  EXPECT_THAT(why, HasSubstr("It sends no message at all"));
  EXPECT_THAT(why, HasSubstr("Among those that send messages tree is fastest."));
}

TEST(Winner, NoReasonIsMadeUp) {
  const std::string why =
      why_it_wins({contender(Algorithm::ordered, 1 << 20, 5), contender(Algorithm::halving_doubling, 1 << 20, 10)});
  EXPECT_THAT(why, HasSubstr("The counts do not tell why: halving_doubling has no more of anything."));
  const std::string level =
      why_it_wins({contender(Algorithm::ring, 1024, 5), contender(Algorithm::ordered, 1024, 5.1)});
  EXPECT_THAT(level, HasSubstr("ring and ordered are level."));
  EXPECT_THAT(level, Not(HasSubstr("wins")));
}

}  // namespace
}  // namespace lockstep::measure
