#include "lockstep/transport/patience.h"

#include <gtest/gtest.h>

namespace lockstep::transport {
namespace {

int passes(Patience patience) {
  int count = 0;
  while (patience.pass()) ++count;
  EXPECT_FALSE(patience.pass()) << "it stays time to sleep";
  return count;
}

TEST(Patience, SpinsAndYieldsAsOftenAsThePolicySays) {
  const int count = passes(Patience({.looks = 1, .spins = 3, .yields = 4}));
  EXPECT_LE(count, 7);  // fewer only if a yield took very long
  EXPECT_GE(count, 3);
}

// On a busy machine a yield takes milliseconds. A rank that counted them only would notice a dead peer after a second.
TEST(Patience, StopsYieldingAfterSomeTime) {
  const auto began = Clock::now();
  passes(Patience({.looks = 1, .spins = 0, .yields = 1 << 30}));
  EXPECT_GE(Clock::now() - began, Patience::kMostYielding);
}

// Callers that yield while they spin have no more time than the others.
TEST(Patience, CountsTheTimeOfItsCallersYields) {
  Patience patience({.looks = 1, .spins = 1 << 30, .yields = 0});
  const auto began = Clock::now();
  while (patience.pass()) patience.about_to_yield();
  EXPECT_GE(Clock::now() - began, Patience::kMostYielding);
}

}  // namespace
}  // namespace lockstep::transport
