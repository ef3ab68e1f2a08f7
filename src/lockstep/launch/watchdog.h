// Ends the ranks when the launcher is killed and can't do it itself.
//
// A small process that does nothing but read a pipe whose only writer is the launcher. The launcher tells it which
// process groups there are. When the pipe closes without a goodbye, the launcher is dead: every group gets SIGKILL. The
// kernel alone (PR_SET_PDEATHSIG) would end the ranks, but not the children of ranks.
//
// It sits in a session of its own with every signal blocked and every other descriptor closed: it holds no terminal and
// no one's pipe open.
#pragma once

#include <sys/types.h>

#include "lockstep/base/fd.h"
#include "lockstep/base/types.h"

namespace lockstep::launch {

class Watchdog {
 public:
  // Forks. Make it before other descriptors and threads, to keep it small.
  explicit Watchdog(int ranks);
  // Says goodbye and waits for the process to end, which it does at once.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void guard(Rank rank, pid_t group);
  // The group is empty; its number may be given to a stranger, who must not be killed.
  void release(Rank rank);
  pid_t pid() const { return pid_; }

 private:
  void tell(Rank rank, pid_t group) const;

  Fd pipe_;  // the write end
  pid_t pid_ = -1;
};

}  // namespace lockstep::launch
