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

TEST(Descendants, KnowsTheChildrenOfTheJobFromOthers) {
  const pid_t ours = start_sleeper("LOCKSTEP_LAUNCHER=" + std::to_string(::getpid()));
  const pid_t other = start_sleeper("LOCKSTEP_LAUNCHER=" + std::to_string(::getpid()) + "0");
  for (int i = 0; i < 500 && children_of_the_job().empty(); ++i) ::usleep(10'000);  // until it has executed
  EXPECT_EQ(children_of_the_job(), std::vector{ours});
  end(ours);
  EXPECT_TRUE(children_of_the_job().empty());
  end(other);
}

TEST(Descendants, SeesThatAProcessIsStopped) {
  const pid_t pid = start_sleeper("A=b");
  EXPECT_FALSE(is_stopped(pid));
  ::kill(pid, SIGSTOP);
  ::waitpid(pid, nullptr, WUNTRACED);
  EXPECT_TRUE(is_stopped(pid));
  end(pid);
  EXPECT_FALSE(is_stopped(pid));
}

}  // namespace
}  // namespace lockstep::launch
