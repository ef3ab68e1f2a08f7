#include "lockstep/rendezvous/identity.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <string>

#include "lockstep/error.h"

namespace lockstep::rendezvous {
namespace {

const std::string kSecret = "sixteen bytes ok";

// Every test begins without a launcher's variables, whoever started it.
class IdentityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "MPI_LOCALRANKID",
                             "MPI_LOCALNRANKS",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_NTASKS_PER_NODE",
                             "SLURM_NNODES",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "PMIX_NAMESPACE",
                             "TORCHELASTIC_RUN_ID",
                             "TORCHELASTIC_RESTART_COUNT",
                             "LOCKSTEP_STORE",
                             "LOCKSTEP_SECRET",
                             "LOCKSTEP_SECRET_FILE",
                             "LOCKSTEP_JOB",
                             "LOCKSTEP_INSECURE",
                             "LOCKSTEP_LAUNCHER",
                             "LOCKSTEP_GENERATION"})
      unsetenv(name);
  }
  static void set(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  static std::string usage_error_of(void (*body)()) {
    try {
      body();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(IdentityTest, NoVariablesMakeAWorldOfOne) {
  const Identity identity = identity_from_environment();
  EXPECT_EQ(identity.rank, 0);
  EXPECT_EQ(identity.size, 1);
}

TEST_F(IdentityTest, EveryLauncherIsUnderstood) {
  const std::map<std::string, std::string> families[] = {
      {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "4"}},
      {{"RANK", "2"}, {"WORLD_SIZE", "4"}},
      {{"OMPI_COMM_WORLD_RANK", "2"},
       {"OMPI_COMM_WORLD_SIZE", "4"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
      {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}},
      {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "2"}},
  };
  for (const auto& variables : families) {
    SetUp();
    set(variables);
    const Identity identity = identity_from_environment();
    EXPECT_EQ(identity.rank, 2) << identity.source;
    EXPECT_EQ(identity.size, 4) << identity.source;
    EXPECT_EQ(identity.local_rank, 2) << identity.source;
    EXPECT_EQ(identity.local_size, 4) << identity.source;
    EXPECT_TRUE(identity.one_host) << identity.source;
  }
}

TEST_F(IdentityTest, RankAndWorldSizeWinOverOthers) {
  set({{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  EXPECT_EQ(identity_from_environment().size, 3);
}

TEST_F(IdentityTest, ContradictionsAreNamed) {
  set({{"RANK", "1"}});
  EXPECT_NE(usage_error_of([] { identity_from_environment(); }).find("RANK is set but WORLD_SIZE is not"),
            std::string::npos);
  set({{"WORLD_SIZE", "1"}});
  EXPECT_NE(usage_error_of([] { identity_from_environment(); }).find("RANK=1 is outside the world"), std::string::npos);
  set({{"WORLD_SIZE", "two"}});
  EXPECT_NE(usage_error_of([] { identity_from_environment(); }).find("WORLD_SIZE is 'two'"), std::string::npos);
}

TEST_F(IdentityTest, OneHostMeetsOnAUnixSocketNamedAfterTheJob) {
  set({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  const auto place = [] { return place_from_environment(identity_from_environment()); };
  const Place by_parent = place();
  EXPECT_TRUE(by_parent.address.is_unix());
  EXPECT_TRUE(by_parent.check_uid);
  EXPECT_TRUE(by_parent.serve);
  EXPECT_EQ(place().address.text(), by_parent.address.text());
  set({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  const std::string by_port = place().address.text();
  EXPECT_NE(by_port, by_parent.address.text());
  set({{"MASTER_PORT", "29501"}});
  EXPECT_NE(place().address.text(), by_port);
  set({{"TORCHELASTIC_RUN_ID", "abc"}});
  EXPECT_EQ(job_name(), "torchrun abc 29501");
  set({{"LOCKSTEP_JOB", "mine"}});
  EXPECT_EQ(job_name(), "job mine");
}

TEST_F(IdentityTest, MpiAndSlurmJobsHaveNamesOfTheirOwn) {
  set({{"PMIX_NAMESPACE", "77"}});
  EXPECT_EQ(job_name(), "pmix 77");
  SetUp();
  set({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(job_name(), "slurm 12.3");
}

TEST_F(IdentityTest, TheLaunchersStoreIsNotServedByARank) {
  set({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_STORE", "127.0.0.1:4000"}, {"LOCKSTEP_SECRET", kSecret}});
  EXPECT_TRUE(place_from_environment(identity_from_environment()).serve);
  set({{"LOCKSTEP_LAUNCHER", "1"}});
  const Place place = place_from_environment(identity_from_environment());
  EXPECT_FALSE(place.serve);
  EXPECT_EQ(place.address.text(), "127.0.0.1:4000");
  EXPECT_EQ(place.secret, kSecret);
}

TEST_F(IdentityTest, SeveralHostsNeedAPlaceAndASecret) {
  set({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}});
  const auto place = [] { place_from_environment(identity_from_environment()); };
  EXPECT_NE(usage_error_of(place).find("LOCKSTEP_STORE=host:port"), std::string::npos);
  set({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}});
  EXPECT_NE(usage_error_of(place).find("neither LOCKSTEP_SECRET nor LOCKSTEP_SECRET_FILE is set"), std::string::npos);
  set({{"LOCKSTEP_INSECURE", "1"}});
  EXPECT_NO_THROW(place());
  unsetenv("LOCKSTEP_INSECURE");
  set({{"LOCKSTEP_SECRET", kSecret}});
  EXPECT_EQ(place_from_environment(identity_from_environment()).address.text(), "10.0.0.1:29500");
}

// Loopback is not an identity: every user of the host can connect to it.
TEST_F(IdentityTest, APortOnLoopbackNeedsASecretToo) {
  const auto place = [] { place_from_environment(identity_from_environment()); };
  for (const char* store : {"127.0.0.1:4000", "[::1]:4000", "localhost:4000", "127.example.com:4000"}) {
    SetUp();
    set({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_STORE", store}});
    EXPECT_NE(usage_error_of(place).find("neither LOCKSTEP_SECRET nor"), std::string::npos) << store;
    set({{"LOCKSTEP_INSECURE", "1"}});
    EXPECT_EQ(usage_error_of(place), "") << store;
  }
  SetUp();
  set({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_STORE", "unix:@name"}});
  EXPECT_TRUE(place_from_environment(identity_from_environment()).check_uid);
}

TEST_F(IdentityTest, AHostNameThatLooksLikeLoopbackIsAnotherHost) {
  set({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.example.com"}, {"MASTER_PORT", "29500"}});
  EXPECT_FALSE(identity_from_environment().one_host);
  set({{"MASTER_ADDR", "127.0.0.1"}});
  EXPECT_TRUE(identity_from_environment().one_host);
}

TEST_F(IdentityTest, AStoreWithPort0IsRefused) {
  set({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_STORE", "127.0.0.1:0"}, {"LOCKSTEP_SECRET", kSecret}});
  EXPECT_NE(usage_error_of([] { place_from_environment(identity_from_environment()); }).find("with port 0"),
            std::string::npos);
}

TEST_F(IdentityTest, ProcessesHaveAStartTimeUntilTheyAreGone) {
  EXPECT_GT(process_start_time(::getpid()), 0U);
  EXPECT_EQ(process_start_time(1 << 30), 0U);
  EXPECT_TRUE(process_is(::getpid(), process_start_time(::getpid())));
  EXPECT_FALSE(process_is(::getpid(), 1)) << "the same pid, another process";
  EXPECT_FALSE(process_is(1 << 30, 1));
}

// Without a free descriptor nobody can tell whether a process lives; that must not count as its end.
TEST_F(IdentityTest, NoDescriptorLeftIsNotTakenForTheEndOfAProcess) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer for undefined behaviour needs a descriptor to look at memory";
#endif
  const std::uint64_t started = process_start_time(::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{3, 3};
    ::setrlimit(RLIMIT_NOFILE, &none);
    bool told = false;
    try {
      process_start_time(::getppid());
    } catch (const SystemError& error) {
      told = error.code() == EMFILE;
    }
    ::_exit(told && process_is(::getppid(), started) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep::rendezvous
