// `lockstep doctor`: what this machine has, whether it works, and what to do if it does not. The proof that a transport
// works is two real ranks that exchange messages over it: each of them runs `lockstep doctor --exchange shm` (or tcp).
#include <fmt/color.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <openssl/crypto.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/cpu.h"
#include "lockstep/base/environment.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/diagnosis/libtorch.h"
#include "lockstep/cli/diagnosis/machine.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/wrap.h"
#include "lockstep/error.h"
#include "lockstep/transport.h"
#include "lockstep/transport/shm/region.h"
#include "lockstep/transport/shm/shm_endpoint.h"
#include "lockstep/world.h"

namespace lockstep::cli {
namespace {

using diagnosis::Finding;
using diagnosis::Verdict;
using nlohmann::json;

const char* word(Verdict verdict) { return verdict == Verdict::ok ? "ok" : verdict == Verdict::note ? "note" : "BAD"; }

Finding versions() {
  utsname system{};
  ::uname(&system);
  Finding finding{"versions", Verdict::ok, "", "", {}};
  finding.detail = {{"lockstep", LOCKSTEP_VERSION},
                    {"compiler", fmt::format("g++ {}.{}", __GNUC__, __GNUC_MINOR__)},
                    {"libc", gnu_get_libc_version()},
                    {"kernel", system.release},
                    {"openssl", OpenSSL_version(OPENSSL_VERSION_STRING)},
                    {"fmt", fmt::format("{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100)}};
  finding.value = fmt::format("lockstep {}, {}, glibc {}, Linux {}, OpenSSL {}", LOCKSTEP_VERSION,
                              finding.detail["compiler"].get<std::string>(), gnu_get_libc_version(), system.release,
                              finding.detail["openssl"].get<std::string>());
  return finding;
}

Finding cores() {
  const int allowed = allowed_cores();
  const int present = static_cast<int>(std::thread::hardware_concurrency());
  Finding finding{"cores", Verdict::ok, fmt::format("{} allowed, {}", allowed, cpu_model()), "", {}};
  finding.detail = {{"allowed", allowed}, {"online", ::sysconf(_SC_NPROCESSORS_ONLN)}, {"model", cpu_model()}};
  if (allowed < 2) {
    finding.verdict = Verdict::note;
    finding.advice = "ranks take turns on one core: everything works, but more ranks make nothing faster";
  } else if (present < ::sysconf(_SC_NPROCESSORS_ONLN)) {
    finding.value += fmt::format(" ({} online)", ::sysconf(_SC_NPROCESSORS_ONLN));
  }
  return finding;
}

Finding shared_memory() {
  const std::size_t available = transport::shm::available_memory();
  Finding finding{
      "shared memory", Verdict::ok, fmt::format("{:.1f} GB free", static_cast<double>(available) / 1e9), "", {}};
  finding.detail = {{"available_bytes", available}};
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) == 0) finding.detail["dev_shm_bytes"] = info.f_frsize * info.f_bavail;
  try {
    transport::shm::Region::create(std::size_t{1} << 20, env("LOCKSTEP_SHM_DIR").value_or(""));
    if (available < (std::size_t{256} << 20)) {
      finding.verdict = Verdict::note;
      finding.advice = "close other programs or raise the memory limit: gradient buckets live there";
    }
  } catch (const Error& error) {
    finding.verdict = Verdict::bad;
    finding.value = "no region of 1 MiB can be made";
    finding.advice = error.what();
  }
  return finding;
}

// A region is made and touched, because what the kernel gives also depends on its version and on LOCKSTEP_SHM_DIR.
Finding large_pages() {
  const std::string setting = transport::shm::large_page_setting();
  std::size_t found = 0;
  try {
    const auto region = transport::shm::Region::create(std::size_t{8} << 20, env("LOCKSTEP_SHM_DIR").value_or(""));
    for (std::size_t at = 0; at < region->size(); at += 4096) region->data()[at] = std::byte{1};
    found = transport::shm::bytes_in_large_pages(*region);
  } catch (const Error&) {  // the finding about shared memory says why
  }
  Finding finding{"large pages", Verdict::ok, "", "", {{"shared_memory", setting}, {"found", found > 0}}};
  finding.value = fmt::format("{} ({})", found > 0 ? "shared memory from 2 MiB on has them" : "none for shared memory",
                              setting.empty() ? "this kernel has no shmem_enabled" : "shmem_enabled is " + setting);
  return finding;
}

Finding environment() {
  Finding finding{"environment", Verdict::ok, "", "", {}};
  try {
    const auto options = transport::Options::from_environment();
    env_seconds("LOCKSTEP_RENDEZVOUS_TIMEOUT", 300s);
    finding.value = fmt::format("LOCKSTEP_TRANSPORT={}, calls time out after {:.3g} s", name_of(options.kind),
                                std::chrono::duration<double>(options.timeout).count());
  } catch (const Error& error) {
    finding.verdict = Verdict::bad;
    finding.value = "a variable has an invalid value";
    finding.advice = error.what();
  }
  return finding;
}

Finding engines() {
  Finding finding{"engines", Verdict::ok, "native, built in; its transports are tried below", "", {}};
  finding.detail = {{"native", true}};
  return finding;
}

// --- two real ranks ---

// The time of a message in one direction, in seconds. The best of several batches counts, because the first ones are
// cold and any of them may be disturbed.
double one_way_time(World& world, std::size_t bytes) {
  auto& wire = world.transport();
  const Rank peer = world.next_rank();
  const std::vector<std::byte> out(bytes, static_cast<std::byte>(0x40 + world.rank()));
  std::vector<std::byte> in(bytes);
  const int rounds = bytes == 8 ? 500 : 20;
  double best = 1e9;
  for (int batch = 0; batch < 8; ++batch) {
    const auto start = Clock::now();
    for (int i = 0; i < rounds; ++i) {
      if (world.rank() == 0) wire.send(peer, 0, out);
      wire.recv(peer, 0, in);
      if (world.rank() != 0) wire.send(peer, 0, out);
    }
    best = std::min(best, seconds_since(start) / rounds / 2);
  }
  if (in != std::vector<std::byte>(bytes, static_cast<std::byte>(0x40 + peer)))
    throw Error(fmt::format("{} arrived changed", describe_bytes(bytes)));
  return best;
}

// Runs on each rank; rank 0 prints what it measured.
int exchange(const std::string& transport) {
  transport::Options options = transport::Options::from_environment();
  options.kind = parse_transport(transport);
  const auto body = [](World& world) {
    json result = {{"transport", world.transport().name()}};
    result["latency_us"] = one_way_time(world, 8) * 1e6;
    result["gbs"] = (1 << 20) / one_way_time(world, 1 << 20) / 1e9;
    if (const auto* shm = dynamic_cast<const transport::shm::ShmEndpoint*>(&world.transport()))
      result["copies"] = shm->single_copy_to(world.next_rank()) ? 1 : 2;
    if (world.rank() == 0) fmt::print("{}\n", result.dump());
  };
  return rank_main(std::function<void(World&)>(body), options);
}

Finding try_transport(const std::string& transport) {
  Finding finding{"transport " + transport, Verdict::bad, "", "", {}};
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = fmt::format(
      "LOCKSTEP_RENDEZVOUS_TIMEOUT=20 LOCKSTEP_TIMEOUT=20 LOCKSTEP_LOG=warn {0} run -n 2 -- {0} doctor --exchange {1} "
      "2>&1",
      diagnosis::quoted(self), transport);
  const auto [status, output] = diagnosis::output_of(command);
  const auto begin = output.find('{');
  const json result = begin == std::string::npos
                          ? json()
                          : json::parse(output.substr(begin, output.find('}', begin) - begin + 1), nullptr, false);
  if (status == 0 && result.is_object()) {
    finding.verdict = Verdict::ok;
    finding.value = fmt::format("2 ranks: {:.2f} us one way, {:.1f} GB/s at 1 MiB", result.value("latency_us", 0.0),
                                result.value("gbs", 0.0));
    finding.detail = result;
    if (result.value("copies", 1) == 2) {
      finding.verdict = Verdict::note;
      finding.value += ", large messages copied twice";
      finding.advice =
          "allow process_vm_readv (kernel.yama.ptrace_scope=0, or the container's seccomp profile) to copy once";
    }
    return finding;
  }
  finding.value = "two ranks could not exchange a message";
  finding.advice =
      output.empty() ? fmt::format("{} run -n 2 -- {} doctor --exchange {}", self, self, transport) : output;
  while (finding.advice.ends_with('\n')) finding.advice.pop_back();
  return finding;
}

void print_table(const std::vector<Finding>& findings, bool well) {
  const bool colour = ::isatty(STDOUT_FILENO) != 0 && !env("NO_COLOR");
  for (const Finding& finding : findings) {
    const auto style = !colour                            ? fmt::text_style()
                       : finding.verdict == Verdict::ok   ? fmt::fg(fmt::terminal_color::green)
                       : finding.verdict == Verdict::note ? fmt::fg(fmt::terminal_color::yellow)
                                                          : fmt::fg(fmt::terminal_color::red);
    const std::string margin(21, ' ');
    fmt::print("{}  {:<14} {}\n", fmt::format(style, "{:<4}", word(finding.verdict)), finding.name,
               wrap(finding.value, margin, margin).substr(margin.size()));
    const char* arrow = "->";
    std::istringstream lines(finding.advice);
    for (std::string line; std::getline(lines, line); arrow = "  ")
      fmt::print("{}\n", wrap(line, margin + arrow + " ", margin + "   "));
  }
  fmt::print("{}\n", well ? "all is well" : "there are problems: see BAD above");
}

constexpr const char* kHelp = R"(Examples:
  lockstep doctor              what is here, and whether it works
  lockstep doctor --json       the same for scripts

Looks at versions, cores, memory for shared regions, libtorch and its BLAS, the load of the machine, limits (ulimit),
ports, namespaces, data sets, variables and engines, and lets two ranks exchange messages over each transport. Each line
has a mark: ok; note, for something that works but could be better; BAD. An arrow says what to do.
Exit code 0 when nothing is BAD, else 1.
)";

}  // namespace

int doctor(std::span<const std::string> arguments) {
  bool as_json = false;
  std::string exchanges_over;
  const std::vector<Flag> flags = {
      {{"--json"}, nullptr, "the same for scripts", [&](const auto&, const auto&) { as_json = true; }},
      {{"--exchange"}, "TRANSPORT", "", [&](const auto&, const auto& value) { exchanges_over = value; }},
  };
  if (asks_for_help(arguments)) {
    fmt::print("{}", kHelp);
    return kExitOk;
  }
  const auto words = read_flags(flags, "doctor", arguments);
  if (!words.empty()) throw UsageError(fmt::format("'{}' is one word too many", words[0]), "lockstep doctor --help");
  if (!exchanges_over.empty()) return exchange(exchanges_over);
  std::vector<Finding> findings = {versions(), cores(), shared_memory(), large_pages()};
  for (Finding& finding : diagnosis::libtorch()) findings.push_back(std::move(finding));
  for (Finding& finding : diagnosis::machine()) findings.push_back(std::move(finding));
  for (const auto& look : {environment, engines}) findings.push_back(look());
  for (const char* transport : {"shm", "tcp"}) findings.push_back(try_transport(transport));
  bool well = true;
  for (const Finding& finding : findings) well = well && finding.verdict != Verdict::bad;
  if (as_json) {
    json document = {{"ok", well}, {"findings", json::array()}};
    for (const Finding& finding : findings)
      document["findings"].push_back({{"name", finding.name},
                                      {"verdict", word(finding.verdict)},
                                      {"value", finding.value},
                                      {"advice", finding.advice},
                                      {"detail", finding.detail}});
    fmt::print("{}\n", document.dump(2));
  } else {
    print_table(findings, well);
  }
  return well ? kExitOk : kExitFailed;
}

}  // namespace lockstep::cli
