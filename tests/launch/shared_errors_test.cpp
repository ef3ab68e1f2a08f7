#include "lockstep/launch/shared_errors.h"
#include "lockstep/base/clock.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

constexpr auto kStart = Clock::time_point(10s);

std::string prefix(Rank rank) { return "[rank " + std::to_string(rank) + "] "; }

TEST(SharedErrors, OtherLinesPassAtOnce) {
  SharedErrors errors;
  const std::string lines = "[rank 0] hello\n[rank 0] lockstep: warn: careful\n[rank 0] lockstep: erroneous\n";
  EXPECT_EQ(errors.take(0, prefix(0), lines, kStart), lines);
  EXPECT_EQ(errors.next_due(), Clock::time_point::max());
  EXPECT_EQ(errors.take(0, prefix(0), "", kStart), "");
}

TEST(SharedErrors, TheSameErrorOfSeveralRanksIsOneLine) {
  SharedErrors errors;
  for (const Rank rank : {2, 0, 1})
    EXPECT_EQ(errors.take(rank, prefix(rank), prefix(rank) + "bye\n" + prefix(rank) + "lockstep: error: no\n", kStart),
              prefix(rank) + "bye\n");
  EXPECT_EQ(errors.due(kStart, false), "") << "others may still come";
  EXPECT_EQ(errors.due(kStart + SharedErrors::kHeldFor, false), "[ranks 0-2] lockstep: error: no\n");
  EXPECT_EQ(errors.next_due(), Clock::time_point::max());
}

// Lines of other ranks that come in the meantime must not put off the lines that are held already.
TEST(SharedErrors, TheFirstLineIsDueWhenItWasHeldForLongEnoughWhateverComesAfterIt) {
  SharedErrors errors;
  errors.take(0, prefix(0), "[rank 0] lockstep: error: a\n", kStart);
  errors.take(1, prefix(1), "[rank 1] lockstep: error: b\n", kStart + 200ms);
  errors.take(2, prefix(2), "[rank 2] lockstep: error: a\n", kStart + 250ms);
  EXPECT_EQ(errors.next_due(), kStart + SharedErrors::kHeldFor);
  EXPECT_EQ(errors.due(errors.next_due(), false), "[ranks 0, 2] lockstep: error: a\n");
  EXPECT_EQ(errors.next_due(), kStart + 200ms + SharedErrors::kHeldFor);
}

TEST(SharedErrors, DifferentErrorsKeepTheirRanks) {
  SharedErrors errors;
  errors.take(1, prefix(1), "[rank 1] lockstep: error: a\n", kStart);
  errors.take(0, prefix(0), "[rank 0] lockstep: error: b\n", kStart);
  EXPECT_EQ(errors.due(kStart, true), "[rank 1] lockstep: error: a\n[rank 0] lockstep: error: b\n");
}

}  // namespace
}  // namespace lockstep::launch
