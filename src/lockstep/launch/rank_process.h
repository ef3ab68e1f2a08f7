// Starts the process of one rank.
//
// The rank leads a process group of its own, so that one signal reaches it and its children. It starts with the default
// action for every signal and with none blocked. The kernel ends it with SIGKILL when the launcher dies.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/fd.h"
#include "lockstep/types.h"

namespace lockstep::launch {

struct RankProcess {
  pid_t pid = -1;  // also the number of its process group
  Fd out;          // the read end of its stdout
  Fd err;          // the read end of its stderr
};

struct Program {
  std::string path;
  std::vector<std::string> arguments;  // the first is the program's name
  std::vector<std::string> environment;
};

// Starts a rank, and returns once the program runs. If `inherit_stdin` is false, the program reads from /dev/null. As
// long as the program does not run yet, `told_to_stop` is called now and then; if it returns true, the child is ended
// and nothing is returned. Throws UsageError if the program cannot be executed, and SystemError if no process or
// descriptor is left. The calling thread must live as long as the ranks, because the kernel takes its end for the
// launcher's death.
std::optional<RankProcess> start_rank(const Program& program, bool inherit_stdin,
                                      const std::function<bool()>& told_to_stop);

}  // namespace lockstep::launch
