#include "lockstep/launch/descendants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace lockstep::launch {
namespace {

// A child that executes `sleep` with one more variable in its environment.
pid_t start_sleeper(const std::string& variable) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  std::string text = variable;
  char name[] = "sleep";
  char time[] = "60";
  char* arguments[] = {name, time, nullptr};
  char* variables[] = {text.data(), nullptr};
  ::execve("/bin/sleep", arguments, variables);
  ::_exit(127);
}

void end(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST(Descendants, KnowsChildrenThatLive) {
  const pid_t pid = start_sleeper("A=b");
  EXPECT_EQ(live_children(), std::vector{pid});
  ::kill(pid, SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);  // a zombie now
  EXPECT_TRUE(live_children().empty());
  end(pid);
}

TEST(Descendants, SeesThatAProcessIsStopped) {
  const pid_t pid = start_sleeper("A=b");
  EXPECT_FALSE(is_stopped(pid));
  ::kill(pid, SIGSTOP);
  ::waitpid(pid, nullptr, WUNTRACED);
  EXPECT_TRUE(is_stopped(pid));
  EXPECT_TRUE(is_stopped_by_signal(pid));
  end(pid);
  EXPECT_FALSE(is_stopped(pid));
}

}  // namespace
}  // namespace lockstep::launch
