#include "lockstep/base/suggest.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

TEST(Closest, FindsTheSlip) {
  const std::vector<std::string> verbs = {"run", "train", "bench", "doctor"};
  EXPECT_EQ(closest("rnu", verbs), "run");
  EXPECT_EQ(closest("benhc", verbs), "bench");
  EXPECT_EQ(closest("docter", verbs), "doctor");
  EXPECT_EQ(closest("trains", verbs), "train");
  EXPECT_EQ(closest("frobnicate", verbs), std::nullopt);
  EXPECT_EQ(closest("x", {}), std::nullopt);
}

}  // namespace
}  // namespace lockstep
