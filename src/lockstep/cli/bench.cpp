// `lockstep bench OP`: starts its own ranks, or is one of them. Rank 0's document is the result; who started the ranks
// shows it.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/benchmark/options.h"
#include "lockstep/cli/benchmark/report.h"
#include "lockstep/cli/benchmark/run.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/start.h"
#include "lockstep/rendezvous/identity.h"
#include "lockstep/transport/world.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

constexpr int kDefaultRanks = 2;

void check_root(const benchmark::Options& options, int ranks) {
  if (options.root >= ranks)
    throw UsageError(fmt::format("--root {} is outside a world of {}", options.root, ranks),
                     fmt::format("--root 0 to {}", ranks - 1));
}

int show(const json& document, const benchmark::Options& options) {
  if (options.json)
    fmt::print("{}\n", document.dump());
  else
    fmt::print("{}", benchmark::table(document));
  std::fflush(stdout);
  const std::string complaints = benchmark::complaints(document, options.min_bandwidth);
  fmt::print(stderr, "{}", complaints);
  return complaints.empty() ? kExitOk : kExitVerification;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Error(fmt::format("cannot write the result to {}", path));
}

int as_rank(const benchmark::Options& options) {
  const int ranks = rendezvous::identity_from_environment().size;
  if (options.ranks && *options.ranks != ranks)
    throw UsageError(fmt::format("--ranks {}, but this is a rank of a world of {}", *options.ranks, ranks),
                     "no --ranks, or without the launcher");
  check_root(options, ranks);
  ::setenv("LOCKSTEP_TRANSPORT", options.transports[0].c_str(), 1);
  int verdict = kExitOk;
  const int code = rank_main([&](World& world) {
    const json document = benchmark::measure(world, options);
    if (world.rank() == 0) {
      if (options.result.empty())
        verdict = show(document, options);
      else
        write(options.result, document.dump());
    }
    // Everyone ends alike, so that a launcher need not tell a failed rank from its peers.
    verdict = std::stoi(world.meeting().exchange("bench/verdict", std::to_string(verdict))[0]);
  });
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
  check_root(options, ranks);
  if (ranks == 1) return as_rank(options);
  std::vector<std::string> words{this_program(), "bench"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto outcome = start_ranks(ranks, words);
  return outcome.exit_code == kExitOk ? show(json::parse(outcome.result), options) : outcome.exit_code;
}

}  // namespace lockstep::cli
