// Processes that ranks started and left behind.
#pragma once

#include <sys/types.h>

#include <vector>

namespace lockstep::launch {

// While it lives, a process whose parent dies becomes the launcher's child and not init's, if it descends from the
// launcher. So the launcher learns of every end (SIGCHLD), and also finds a daemon that left its rank's process group.
class Adoption {
 public:
  Adoption();
  ~Adoption();
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;

 private:
  int before_ = 0;
};

// Children of this process, adopted ones among them. Zombies are not.
std::vector<pid_t> live_children();

// Stopped by a signal (or by a debugger).
bool is_stopped(pid_t pid);
bool is_stopped_by_signal(pid_t pid);

}  // namespace lockstep::launch
