#include "lockstep/transport/patience.h"

#include <gtest/gtest.h>

namespace lockstep::transport {
namespace {

TEST(Patience, SpinsAndYieldsAsOftenAsThePolicySays) {
  Patience patience({.looks = 1, .spins = 3, .yields = 4});
  int passes = 0;
  while (patience.pass()) ++passes;
  EXPECT_LE(passes, 7);  // fewer only if a yield took very long
  EXPECT_GE(passes, 3);
  EXPECT_FALSE(patience.pass()) << "it stays time to sleep";
}

// On a busy machine a yield takes milliseconds. A rank that counted them only would notice a dead peer after a second.
TEST(Patience, StopsYieldingAfterSomeTime) {
  Patience patience({.looks = 1, .spins = 0, .yields = 1 << 30});
  const auto began = Clock::now();
  while (patience.pass()) {
  }
  EXPECT_GE(Clock::now() - began, Patience::kMostYielding);
}

}  // namespace
}  // namespace lockstep::transport
