// Starts one rank.
//
// The rank leads a process group of its own, so that one signal reaches it and its children. It starts with every
// signal at its default and none blocked, and the kernel ends it with SIGKILL when the launcher dies.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/fd.h"
#include "lockstep/base/types.h"

namespace lockstep::launch {

struct RankProcess {
  pid_t pid = -1;  // also its process group
  Fd out;          // read ends of its stdout and stderr
  Fd err;
};

struct Program {
  std::string path;
  std::vector<std::string> arguments;  // the first is the program's name
  std::vector<std::string> environment;
};

// Returns once the program runs. `inherit_stdin`: else it reads from /dev/null. Throws UsageError when the program
// can't be executed, SystemError when there is no room for another process. Call it from the thread that lives as long
// as the ranks may: its end counts as the launcher's death. While the program is not yet there it asks `told_to_stop`
// now and then; if that says yes, the child is ended and nothing is returned.
std::optional<RankProcess> start_rank(const Program& program, bool inherit_stdin,
                                      const std::function<bool()>& told_to_stop);

}  // namespace lockstep::launch
