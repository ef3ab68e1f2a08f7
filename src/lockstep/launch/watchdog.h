// Ends the ranks if the launcher is killed and cannot do it itself.
//
// The watchdog is a small process that does nothing but read a pipe whose only writer is the launcher. The launcher
// tells it which process groups there are. If the pipe closes without a goodbye, the launcher is dead, and the watchdog
// sends SIGKILL to every group. The kernel alone (PR_SET_PDEATHSIG) would end the ranks, but not the children of ranks.
//
// The watchdog has a session of its own, with every signal blocked and every other descriptor closed. So it keeps open
// neither a terminal nor a pipe of another process.
#pragma once

#include <sys/types.h>

#include "lockstep/base/fd.h"
#include "lockstep/types.h"

namespace lockstep::launch {

class Watchdog {
 public:
  // Forks the watchdog. Make it before other descriptors and threads, to keep the process small.
  explicit Watchdog(int ranks);
  // Says goodbye, and waits until the watchdog has ended, which it does at once.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void guard(Rank rank, pid_t group);
  // Called when the group is empty. Its number may be given to an unrelated process, which must not be killed.
  void release(Rank rank);
  pid_t pid() const { return pid_; }

 private:
  void tell(Rank rank, pid_t group) const;

  Fd pipe_;  // the write end
  pid_t pid_ = -1;
};

}  // namespace lockstep::launch
