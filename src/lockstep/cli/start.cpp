#include "lockstep/cli/start.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/fd.h"
#include "lockstep/error.h"
#include "lockstep/launch/run.h"
#include "lockstep/rendezvous/identity.h"

namespace lockstep::cli {
namespace {

constexpr auto kForOurOwn = 120s;  // our own programs go to the store at once, but a slow disk may delay their start

}  // namespace

Outcome start_ranks(int ranks, std::vector<std::string> command) {
  // A file without a name: nothing is left of it, whatever happens. The ranks inherit its descriptor.
  const Fd result(::memfd_create("lockstep-result", 0));
  if (!result) throw SystemError(errno, "cannot make a file for the result");
  launch::Options options;
  options.ranks = ranks;
  options.command = std::move(command);
  options.must_meet_within = env_seconds("LOCKSTEP_RENDEZVOUS_TIMEOUT", kForOurOwn);
  options.command.insert(options.command.end(), {"--result", "/proc/self/fd/" + std::to_string(result.get())});
  Outcome outcome{launch::run(options), ""};
  struct stat info {};
  ::fstat(result.get(), &info);
  outcome.result.resize(static_cast<std::size_t>(info.st_size));
  if (::pread(result.get(), outcome.result.data(), outcome.result.size(), 0) != info.st_size)
    throw SystemError(errno, "cannot read the result of the ranks");
  return outcome;
}

void write_result(const std::string& path, const nlohmann::json& document) {
  std::ofstream file(path, std::ios::binary);
  // A path in the document need not be UTF-8.
  file << document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  file.close();
  if (!file) throw Error(fmt::format("cannot write the result to {}", path));
}

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

std::string torch_program(const std::string& verb) {
  std::string path = std::filesystem::path(this_program()).replace_filename("lockstep-torch").string();
  if (::access(path.c_str(), X_OK) != 0)
    throw UsageError(
        fmt::format("{} needs libtorch, and this lockstep was built without it: there is no {}", verb, path),
        "a build without -DLOCKSTEP_TORCH=OFF and without sanitizers");
  return path;
}

bool is_rank() { return rendezvous::identity_from_environment().source != rendezvous::Identity{}.source; }

}  // namespace lockstep::cli
