#include "lockstep/launch/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Not;

const JobFacts kJob{4, "127.0.0.1", 29500, "127.0.0.1:4000", "s3cret", 77, 2};

TEST(RankEnvironment, SaysWhoTheRankIs) {
  const auto variables = rank_environment(kJob, 3, {"HOME=/home/me", "RANK=9", "EMPTY="});
  EXPECT_THAT(variables, IsSupersetOf({"HOME=/home/me", "EMPTY=", "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=3",
                                       "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
                                       "LOCKSTEP_STORE=127.0.0.1:4000", "LOCKSTEP_SECRET=s3cret",
                                       "LOCKSTEP_LAUNCHER=77", "LOCKSTEP_GENERATION=0", "GROUP_RANK=0"}));
  EXPECT_THAT(variables, Not(Contains("RANK=9")));
}

// With both variables set a rank would refuse to guess which one counts.
TEST(RankEnvironment, TheLaunchersSecretTakesThePlaceOfTheUsersFile) {
  const auto variables = rank_environment(kJob, 0, {"LOCKSTEP_SECRET_FILE=/home/me/secret", "LOCKSTEP_SECRET=mine"});
  EXPECT_THAT(variables, Contains("LOCKSTEP_SECRET=s3cret"));
  EXPECT_THAT(variables, Not(Contains("LOCKSTEP_SECRET_FILE=/home/me/secret")));
  EXPECT_THAT(variables, Not(Contains("LOCKSTEP_SECRET=mine")));
}

TEST(RankEnvironment, KeepsWhatTheUserSet) {
  EXPECT_THAT(rank_environment(kJob, 0, {}), IsSupersetOf({"OMP_NUM_THREADS=2", "PYTHONUNBUFFERED=1"}));
  const auto variables = rank_environment(kJob, 0, {"OMP_NUM_THREADS=5", "PYTHONUNBUFFERED=x"});
  EXPECT_THAT(variables, IsSupersetOf({"OMP_NUM_THREADS=5", "PYTHONUNBUFFERED=x"}));
  EXPECT_THAT(variables, Not(Contains("OMP_NUM_THREADS=2")));
  EXPECT_THAT(rank_environment(kJob, 0, {"OMP_NUM_THREADS="}), Contains("OMP_NUM_THREADS=2")) << "empty is not set";
}

}  // namespace
}  // namespace lockstep::launch
