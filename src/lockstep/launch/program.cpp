#include "lockstep/launch/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_executable(const std::string& path) { return is_file(path) && ::access(path.c_str(), X_OK) == 0; }

// The hint for a file that exists but cannot be executed.
std::string way_to_run(const std::string& path) {
  if (path.ends_with(".py")) return fmt::format("python3 {}", path);
  if (path.ends_with(".sh")) return fmt::format("sh {}", path);
  return fmt::format("chmod +x {}", path);
}

}  // namespace

std::string find_program(const std::string& name, const std::string& search_path) {
  if (name.empty()) throw UsageError("the program's name is empty", "lockstep run -n 4 -- ./program");
  if (name.find('/') != std::string::npos) {
    if (is_executable(name)) return name;
    struct stat info {};
    if (::stat(name.c_str(), &info) != 0)
      throw UsageError(fmt::format("there is no program '{}'", name), "its path from this folder, or from /");
    if (S_ISDIR(info.st_mode)) throw UsageError(fmt::format("'{}' is a folder", name), "the program inside it");
    throw UsageError(fmt::format("'{}' is not executable", name), way_to_run(name));
  }
  std::istringstream folders(search_path);
  std::string unusable;
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable(path)) return path;
    if (unusable.empty() && is_file(path)) unusable = std::move(path);
  }
  if (!unusable.empty()) throw UsageError(fmt::format("'{}' is not executable", unusable), way_to_run(unusable));
  if (is_executable("./" + name)) throw UsageError(fmt::format("'{}' is not in PATH", name), "./" + name);
  if (is_file(name)) throw UsageError(fmt::format("'{}' is not a program", name), way_to_run(name));
  throw UsageError(fmt::format("there is no program '{}' in PATH", name), "./program for one in this folder");
}

}  // namespace lockstep::launch
