#include "lockstep/launch/watchdog.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

constexpr Rank kGoodbye = -1;

struct Message {
  Rank rank;
  pid_t group;  // 0 if the rank is released
};

void close_all_but(int kept) {
  if (kept > 0) ::close_range(0, static_cast<unsigned>(kept) - 1, 0);
  ::close_range(static_cast<unsigned>(kept) + 1, ~0U, 0);
}

// The watchdog process. It makes only system calls, because it was forked from a process that may have threads.
[[noreturn]] void watch(int pipe, std::span<pid_t> groups) {
  ::setsid();
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "lockstep-guard");
  close_all_but(pipe);
  [[maybe_unused]] const int moved = ::chdir("/");
  Message message{};
  while (true) {
    const ssize_t got = ::read(pipe, &message, sizeof message);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof message) break;
    if (message.rank == kGoodbye) ::_exit(0);
    groups[static_cast<std::size_t>(message.rank)] = message.group;
  }
  for (const pid_t group : groups)
    if (group > 0) ::kill(-group, SIGKILL);
  ::_exit(0);
}

}  // namespace

Watchdog::Watchdog(int ranks) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError(errno, "cannot make a pipe", "a higher `ulimit -n`");
  const Fd read_end(ends[0]);
  pipe_ = Fd(ends[1]);
  std::vector<pid_t> groups(static_cast<std::size_t>(ranks), 0);
  pid_ = ::fork();
  if (pid_ < 0) throw SystemError(errno, "cannot start another process", "a higher `ulimit -u`");
  if (pid_ == 0) watch(read_end.get(), groups);
}

Watchdog::~Watchdog() {
  tell(kGoodbye, 0);
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void Watchdog::guard(Rank rank, pid_t group) { tell(rank, group); }

void Watchdog::release(Rank rank) { tell(rank, 0); }

void Watchdog::tell(Rank rank, pid_t group) const {
  const Message message{rank, group};  // a pipe takes so few bytes completely or not at all
  [[maybe_unused]] const auto written = ::write(pipe_.get(), &message, sizeof message);
}

}  // namespace lockstep::launch
