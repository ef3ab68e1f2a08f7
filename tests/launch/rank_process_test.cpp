// Starting a rank, up to the moment when its program runs.
#include "lockstep/launch/rank_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "lockstep/base/clock.h"

namespace lockstep::launch {
namespace {

const Program kSleep{"/bin/sleep", {"sleep", "100"}, {}};

TEST(StartRank, ReturnsWhenTheProgramRuns) {
  const auto process = start_rank(kSleep, false, [] { return false; });
  ASSERT_TRUE(process);
  ::kill(process->pid, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(process->pid, &status, 0), process->pid);
}

// Stops children of the thread `parent` as soon as they exist: nearly always before they have executed their program.
void stop_children_of(pid_t parent, const std::atomic<bool>& enough) {
  const std::string list = "/proc/self/task/" + std::to_string(parent) + "/children";
  while (!enough) {
    std::ifstream file(list);
    for (pid_t child = 0; file >> child;) ::kill(child, SIGSTOP);
  }
}

TEST(StartRank, HearsThatItIsToldToStopBetweenForkAndExec) {
  const auto me = static_cast<pid_t>(::syscall(SYS_gettid));
  bool held = false;
  for (int attempt = 0; attempt < 50 && !held; ++attempt) {
    std::atomic<bool> enough{false};
    std::thread stopper([&] { stop_children_of(me, enough); });
    const auto began = Clock::now();
    const auto process = start_rank(kSleep, false, [&] { return Clock::now() - began > 300ms; });
    enough = true;
    stopper.join();
    if (process) {  // it was faster
      ::kill(process->pid, SIGKILL);
      ::waitpid(process->pid, nullptr, 0);
      continue;
    }
    held = true;
    EXPECT_LT(Clock::now() - began, 10s);
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "the child is still there";
  }
  if (!held) GTEST_SKIP() << "no child could be stopped in time";
}

}  // namespace
}  // namespace lockstep::launch
