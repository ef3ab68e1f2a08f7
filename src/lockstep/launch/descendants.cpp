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

// What /proc says in one of its files; empty when the process is gone.
std::string read_proc(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

Adoption::Adoption() {
  ::prctl(PR_GET_CHILD_SUBREAPER, &before_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Adoption::~Adoption() { ::prctl(PR_SET_CHILD_SUBREAPER, before_); }

std::vector<pid_t> children_of_the_job() {
  const std::string mark = fmt::format("LOCKSTEP_LAUNCHER={}", ::getpid()) + '\0';
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t pid = 0; children >> pid;) {
      const std::string environment = '\0' + read_proc(fmt::format("/proc/{}/environ", pid));
      if (environment.find('\0' + mark) != std::string::npos) found.push_back(pid);
    }
  }
  return found;
}

bool is_stopped(pid_t pid) {
  const std::string stat = read_proc(fmt::format("/proc/{}/stat", pid));
  const auto name_end = stat.rfind(") ");  // the name may hold anything
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return false;
  const char state = stat[name_end + 2];
  return state == 'T' || state == 't';
}

}  // namespace lockstep::launch
