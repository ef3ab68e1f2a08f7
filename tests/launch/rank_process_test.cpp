// Starting a rank, up to the moment when its program runs.
#include "lockstep/launch/rank_process.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <iterator>

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

// From now on no process that this one forks gets past execve(): the kernel asks a listener first, which never answers.
// Returns false where the kernel does not allow it.
bool hold_every_exec() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program) >= 0;
}

// In a process of its own, because the filter stays for ever.
TEST(StartRank, HearsThatItIsToldToStopBetweenForkAndExec) {
  enum Ending { ended_it, no_filter, program_ran, took_too_long, left_it };
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::alarm(30);
    if (!hold_every_exec()) ::_exit(no_filter);
    const auto began = Clock::now();
    const auto process = start_rank(kSleep, false, [&] { return Clock::now() - began > 300ms; });
    if (process) ::_exit(program_ran);
    if (Clock::now() - began > 10s) ::_exit(took_too_long);
    ::_exit(::waitpid(-1, nullptr, WNOHANG) == -1 ? ended_it : left_it);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(launcher, &status, 0), launcher);
  ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == no_filter) GTEST_SKIP() << "the kernel allows no seccomp listener here";
  EXPECT_EQ(WEXITSTATUS(status), ended_it);
}

}  // namespace
}  // namespace lockstep::launch
