// `lockstep bench OP`: starts its own ranks, or is one of them. The result is the document of rank 0; the process that
// started the ranks shows it.
#include <fmt/format.h>

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/fd.h"
#include "lockstep/cli/benchmark/options.h"
#include "lockstep/cli/benchmark/report.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/start.h"
#include "lockstep/error.h"
#include "lockstep/measure/bench.h"
#include "lockstep/rendezvous/identity.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/world.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

constexpr int kDefaultRanks = 2;

// Writes the lines of the table as they are measured. On a terminal it also says how long the rest will take.
class Lines {
 public:
  // With an `fd` of -1 it writes nothing.
  explicit Lines(int fd) : fd_(fd), terminal_(fd >= 0 && ::isatty(fd) != 0) {}

  measure::Observer observer() {
    return {[this](const json& plan) {
              table_.emplace(plan);
              write(table_->heading());
            },
            [this](const json& row) { write(table_->line(row)); },
            [this](std::size_t bytes, double seconds_left) {
              if (!terminal_ || seconds_left < kWorthSaying) return;
              write(fmt::format("  {}: about {:.0f} s left", brief_bytes(static_cast<double>(bytes)), seconds_left));
              covers_ = true;
            }};
  }

 private:
  static constexpr double kWorthSaying = 3;  // seconds

  void write(std::string text) const {
    if (fd_ < 0) return;
    if (std::exchange(covers_, false)) text = "\r\x1b[K" + text;
    for (std::string_view left = text; !left.empty();) {
      const ssize_t n = ::write(fd_, left.data(), left.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;  // nobody reads the table any more
      left.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  const int fd_;
  const bool terminal_;
  std::optional<benchmark::Table> table_;
  mutable bool covers_ = false;  // the last line on the terminal is temporary and must be erased
};

// Shows what follows the rows, which were written as they were measured. Returns the exit code.
int show(const json& document, const benchmark::Options& options) {
  if (options.json)
    fmt::print("{}\n", document.dump());
  else
    fmt::print("{}", benchmark::footer(document));
  std::fflush(stdout);
  const std::string complaints = benchmark::complaints(document, options.min_bandwidth);
  fmt::print(stderr, "{}", complaints);
  return complaints.empty() ? kExitOk : kExitVerification;
}

int as_rank(const benchmark::Options& options) {
  const int ranks = rendezvous::identity_from_environment().size;
  if (options.ranks && *options.ranks != ranks)
    throw UsageError(fmt::format("--ranks {}, but this is a rank of a world of {}", *options.ranks, ranks),
                     "no --ranks, or without the launcher");
  check_world(options, ranks);
  std::signal(SIGPIPE, SIG_IGN);  // the launcher notices when nobody reads, and ends all ranks
  transport::Options over = transport::Options::from_environment();
  over.kind = options.transports[0];
  int verdict = kExitOk;
  const int code = rank_main(
      [&](World& world) {
        const bool shows = options.result.empty() && !options.json;
        Lines lines(world.rank() != 0 ? -1 : shows ? STDOUT_FILENO : options.rows_fd);
        const json document = measure::run_bench(world, options, lines.observer());
        if (world.rank() == 0) {
          if (options.result.empty())
            verdict = show(document, options);
          else
            write_result(options.result, document);
        }
        // All ranks end with the same code, so that a launcher does not have to tell a failed rank from its peers.
        verdict = std::stoi(world.meeting().exchange("bench/verdict", std::to_string(verdict))[0]);
      },
      over);
  return code == kExitOk ? verdict : code;
}

}  // namespace

int bench(std::span<const std::string> arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", benchmark::help());
    return kExitOk;
  }
  const benchmark::Options options = benchmark::parse(arguments);
  if (is_rank()) return as_rank(options);
  const int ranks = options.ranks.value_or(kDefaultRanks);
  check_world(options, ranks);
  if (ranks == 1) return as_rank(options);
  std::vector<std::string> words{this_program(), "bench"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const Fd rows(options.json ? -1 : ::dup(STDOUT_FILENO));
  if (rows) words.insert(words.end(), {"--rows-fd", std::to_string(rows.get())});
  const auto outcome = start_ranks(ranks, words);
  return outcome.exit_code == kExitOk ? show(json::parse(outcome.result), options) : outcome.exit_code;
}

}  // namespace lockstep::cli
