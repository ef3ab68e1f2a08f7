// Finds the processes that ranks started and left behind.
#pragma once

#include <sys/types.h>

#include <vector>

namespace lockstep::launch {

// While an Adoption exists, a descendant of the launcher whose parent dies becomes a child of the launcher, and not of
// init. So the launcher learns when such a process ends (SIGCHLD), and also finds a daemon that left its rank's process
// group.
class Adoption {
 public:
  Adoption();
  ~Adoption();
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;

 private:
  int before_ = 0;
};

// The children of this process, including adopted ones, but without zombies.
std::vector<pid_t> live_children();

// is_stopped() is true if a signal or a debugger has stopped the process, is_stopped_by_signal() only if a signal has.
bool is_stopped(pid_t pid);
bool is_stopped_by_signal(pid_t pid);

}  // namespace lockstep::launch
