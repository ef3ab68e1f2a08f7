#include "lockstep/cli/running/options.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "lockstep/base/cpu.h"
#include "lockstep/base/environment.h"
#include "lockstep/cli/flags.h"
#include "lockstep/error.h"

namespace lockstep::cli::running {
namespace {

constexpr int kMaxRanks = 4096;

constexpr const char* kExamples = R"(Examples:
  lockstep run -n 4 ./train --epochs 3             four ranks of a program
  lockstep run -n 2 -- python3 train.py            a PyTorch script: it finds RANK, WORLD_SIZE, MASTER_ADDR ...
  lockstep run --nproc_per_node=auto ./train       one rank per core
  lockstep run -n 4 --log-dir logs ./train         also write logs/rank_0.stdout, logs/rank_0.stderr ...

Starts n ranks of a program on this host, watches them, and says who failed first.

Usage: lockstep run [flags] [--] program [arguments]

)";

constexpr const char* kNotes = R"(
Dashes and underscores are the same in a flag, and so are "--flag value" and "--flag=value".
A stream is 0 (neither), 1 (stdout), 2 (stderr) or 3 (both).
Returns 0 when every rank did, else the code of the rank that failed first (128+N when signal N ended it).
)";

// What the flags that were read so far have set.
struct Draft {
  launch::Options options;
  std::optional<unsigned> redirects;
  std::optional<unsigned> tee;
  bool help = false;
};

int number_of_ranks(const std::string& name, const std::string& value) {
  if (value == "auto" || value == "cpu") return allowed_cores();
  if (value == "gpu") throw UsageError(fmt::format("{} gpu: ranks run on the CPU", name), fmt::format("{} auto", name));
  try {
    return static_cast<int>(parse_int(name, value, 1, kMaxRanks));
  } catch (const UsageError& error) {
    throw UsageError(error.facts().message, fmt::format("{} 2, or {} auto for one rank per core", name, name));
  }
}

unsigned streams(const std::string& name, const std::string& value) {
  if (value.size() == 1 && value[0] >= '0' && value[0] <= '3') return static_cast<unsigned>(value[0] - '0');
  throw UsageError(fmt::format("{} is '{}'", name, value), "0 (neither), 1 (stdout), 2 (stderr) or 3 (both)");
}

Duration seconds(const std::string& name, const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !(number >= 0) || number > 86400)
    throw UsageError(fmt::format("{} is '{}', not a number of seconds from 0 to 86400", name, value),
                     fmt::format("{} 2", name));
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(number));
}

// For flags of torchrun that have only one useful value on one host.
void only(const char* allowed, const char* why, const std::string& name, const std::string& value) {
  if (value != allowed)
    throw UsageError(fmt::format("{} {} is not supported yet: {}", name, value, why),
                     fmt::format("{} {}, or leave it out", name, allowed));
}

std::vector<Flag> flags(Draft& d) {
  using S = const std::string&;
  return {
      {{"-n", "--ranks", "-np", "--nproc-per-node"},
       "N",
       "number of ranks, or auto (one per core); default 1",
       [&d](S n, S v) { d.options.ranks = number_of_ranks(n, v); }},
      {{"--log-dir"},
       "DIR",
       "also write each rank's streams to DIR/rank_N.stdout and .stderr",
       [&d](S n, S v) {
         if (v.empty()) throw UsageError(fmt::format("{} is empty", n), fmt::format("{} logs", n));
         d.options.log_dir = v;
       }},
      {{"-t", "--tee"},
       "STREAM",
       "streams for console and file; default 3 with --log-dir",
       [&d](S n, S v) { d.tee = streams(n, v); }},
      {{"-r", "--redirects"},
       "STREAM",
       "streams for the file alone, not the console; --tee wins",
       [&d](S n, S v) { d.redirects = streams(n, v); }},
      {{"--grace"},
       "SECONDS",
       "after a failure: time until the ranks get SIGTERM, and from then until SIGKILL; default 2",
       [&d](S n, S v) { d.options.grace = seconds(n, v); }},
      {{"--master-addr"},
       "ADDR",
       "MASTER_ADDR, for the program's own use; default 127.0.0.1",
       [&d](S n, S v) {
         if (v.empty()) throw UsageError(fmt::format("{} is empty", n), fmt::format("{} 127.0.0.1", n));
         d.options.master_addr = v;
       }},
      {{"--master-port"},
       "PORT",
       "MASTER_PORT, for the program's own use; default a free one",
       [&d](S n, S v) {
         try {
           d.options.master_port = static_cast<int>(parse_int(n, v, 0, 65535));
         } catch (const UsageError& error) {
           throw UsageError(error.facts().message, "another port, or none for a free one");
         }
       }},
      {{"--nnodes"},
       "1",
       "only 1 is possible: ranks run on this host",
       [](S n, S v) { only("1", "ranks run on this host", n, v); }},
      {{"--node-rank"}, "0", "only 0 is possible", [](S n, S v) { only("0", "ranks run on this host", n, v); }},
      {{"--max-restarts"},
       "0",
       "only 0 is possible: a failed job ends",
       [](S n, S v) { only("0", "a failed job ends", n, v); }},
      {{"--standalone"}, nullptr, "accepted and ignored: a job always runs on this host alone", [](S, S) {}},
      {{"--no-python"}, nullptr, "accepted: the program is run as it is", [](S, S) {}},
      {{"-h", "--help"}, nullptr, "this text", [&d](S, S) { d.help = true; }},
  };
}

launch::Options finish(const Draft& draft) {
  launch::Options options = draft.options;
  if (options.log_dir.empty() && (draft.tee.value_or(0) | draft.redirects.value_or(0)) != 0)
    throw UsageError(
        fmt::format("{} needs a folder for the files", draft.tee.value_or(0) != 0 ? "--tee" : "--redirects"),
        "--log-dir logs");
  if (options.log_dir.empty()) return options;
  const unsigned redirects = draft.redirects.value_or(launch::kNeither);
  const unsigned tee = draft.tee.value_or(draft.redirects ? unsigned{launch::kNeither} : unsigned{launch::kBoth});
  options.to_file = redirects | tee;
  options.to_console = launch::kBoth & ~(redirects & ~tee);
  return options;
}

}  // namespace

std::optional<launch::Options> parse(std::span<const std::string> arguments) {
  Draft draft;
  std::span<const std::string> program;
  try {
    program = read_leading_flags(flags(draft), "run", arguments);
  } catch (const UsageError&) {
    if (!draft.help) throw;  // help is shown even if the rest is wrong
  }
  if (draft.help) return std::nullopt;
  if (program.empty()) throw UsageError("no program to run", "lockstep run -n 4 -- ./program its arguments");
  draft.options.command.assign(program.begin(), program.end());
  return finish(draft);
}

std::string help() {
  constexpr std::size_t kColumn = 33;
  Draft draft;
  return kExamples + describe_flags(flags(draft), kColumn) + kNotes;
}

}  // namespace lockstep::cli::running
