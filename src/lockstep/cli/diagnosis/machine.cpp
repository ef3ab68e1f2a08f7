#include "lockstep/cli/diagnosis/machine.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/cpu.h"
#include "lockstep/base/fd.h"
#include "lockstep/data/sources.h"

namespace lockstep::cli::diagnosis {
namespace {

double load_per_core() {
  double averages[1] = {0};
  return ::getloadavg(averages, 1) == 1 ? averages[0] / allowed_cores() : 0;
}

std::string limit_text(rlim_t limit) { return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit); }

// One line for the limits of `ulimit` that have made jobs fail: open files, processes, the size of a file.
Finding limits() {
  constexpr rlim_t kFiles = 256, kProcesses = 256;
  rlimit files{}, processes{}, size{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_NPROC, &processes);
  ::getrlimit(RLIMIT_FSIZE, &size);
  Finding finding{"limits", Verdict::ok, "", "", {}};
  finding.value = fmt::format("{} open files, {} processes and threads, files of {} bytes", limit_text(files.rlim_cur),
                              limit_text(processes.rlim_cur), limit_text(size.rlim_cur));
  finding.detail = {{"open_files", limit_text(files.rlim_cur)},
                    {"processes", limit_text(processes.rlim_cur)},
                    {"file_size", limit_text(size.rlim_cur)}};
  std::vector<std::string> advice;
  if (files.rlim_cur < kFiles) advice.emplace_back("ulimit -n 1024: tcp needs one open file for each peer");
  if (processes.rlim_cur < kProcesses)
    advice.emplace_back("ulimit -u 4096: each rank has several threads, and this counts all of yours");
  if (size.rlim_cur != RLIM_INFINITY)
    advice.emplace_back("ulimit -f unlimited: the limit counts for shared memory, too");
  if (!advice.empty()) finding.verdict = Verdict::note;
  finding.advice = fmt::format("{}", fmt::join(advice, "\n"));
  return finding;
}

// Checks whether there is a free port on loopback, where ranks meet.
Finding ports() {
  Finding finding{"ports", Verdict::ok, "", "", {}};
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* name = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), name, length) != 0 || ::listen(socket.get(), 1) != 0 ||
      ::getsockname(socket.get(), name, &length) != 0) {
    finding.verdict = Verdict::bad;
    finding.value = fmt::format("cannot listen on any port of 127.0.0.1: {}", std::strerror(errno));
    finding.advice = "ip link set lo up, or a sandbox that allows sockets";
    return finding;
  }
  finding.value = fmt::format("a port on 127.0.0.1 is free, such as {}", ntohs(address.sin_port));
  return finding;
}

// Tests with several hosts on one machine need network namespaces. They are tried in a child process, because they end
// with it.
Finding namespaces() {
  Finding finding{"namespaces", Verdict::ok, "network namespaces can be made", "", {}};
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 ? 0 : 1);
  int status = 1;
  const bool ended = child > 0 && ::waitpid(child, &status, 0) == child;
  const bool can = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  finding.detail = {{"network", can}};
  if (can) return finding;
  finding.verdict = Verdict::note;
  finding.value = "no network namespace can be made";
  finding.advice = "only tests with several hosts on one machine need them: run those as root";
  return finding;
}

Finding data_sets() {
  Finding finding{"data sets", Verdict::ok, "synthetic", "", {}};
  std::vector<std::string> missing;
  for (const data::Source& source : data::sources()) {
    const auto file = data::find_file(source, "train-images-idx3-ubyte", "");
    finding.detail[source.name()] = file ? file->parent_path().string() : "";
    if (file)
      finding.value += fmt::format(", {} in {}", source.name(), file->parent_path().string());
    else
      missing.push_back(fmt::format("for {}: {}", source.name(), source.get));
  }
  if (missing.empty()) return finding;
  finding.verdict = Verdict::note;
  finding.advice = fmt::format("{}", fmt::join(missing, "\n"));
  return finding;
}

}  // namespace

Finding load_finding(double per_core) {
  constexpr double kQuiet = 0.5;
  Finding finding{"load", Verdict::ok, fmt::format("{:.1f} processes per core want to run", per_core), "", {}};
  finding.detail = {{"per_core", per_core}};
  if (per_core <= kQuiet) return finding;
  finding.verdict = Verdict::note;
  finding.advice = "other programs take the cores: figures measured now are too slow";
  return finding;
}

std::vector<Finding> machine() { return {load_finding(load_per_core()), limits(), ports(), namespaces(), data_sets()}; }

}  // namespace lockstep::cli::diagnosis
