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

// Children of this process that belong to its job: LOCKSTEP_LAUNCHER in the environment they were started with is this
// process's pid. Zombies are not among them.
std::vector<pid_t> children_of_the_job();

// Stopped by a signal (or by a debugger).
bool is_stopped(pid_t pid);

}  // namespace lockstep::launch
