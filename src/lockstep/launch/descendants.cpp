#include "lockstep/launch/descendants.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace lockstep::launch {
namespace {

// The state of a process as proc(5) names it, or '\0' if the process is gone.
char state_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string stat{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto name_end = stat.rfind(") ");  // the process name may contain anything
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? '\0' : stat[name_end + 2];
}

}  // namespace

Adoption::Adoption() {
  ::prctl(PR_GET_CHILD_SUBREAPER, &before_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Adoption::~Adoption() { ::prctl(PR_SET_CHILD_SUBREAPER, before_); }

std::vector<pid_t> live_children() {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t pid = 0; children >> pid;)
      if (const char state = state_of(pid); state != 'Z' && state != 'X' && state != '\0') found.push_back(pid);
  }
  return found;
}

bool is_stopped(pid_t pid) {
  const char state = state_of(pid);
  return state == 'T' || state == 't';
}

bool is_stopped_by_signal(pid_t pid) { return state_of(pid) == 'T'; }

}  // namespace lockstep::launch
