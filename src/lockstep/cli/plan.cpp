// `lockstep plan`: shows what an algorithm does, as text or as a picture, made from the plan that really runs. No
// process is started.
#include <fmt/core.h>

#include <optional>

#include "lockstep/base/environment.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/files.h"
#include "lockstep/cli/flags.h"
#include "lockstep/collectives/picture.h"
#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

struct Options {
  int ranks = 4;
  std::string svg;
  std::optional<Rank> rank;
};

std::vector<Flag> flags_for(Options& options) {
  return {
      {{"-n", "--ranks"},
       "N",
       "ranks (4)",
       [&](const std::string& name, const std::string& value) {
         options.ranks = static_cast<int>(parse_int(name, value, 1, 64));
       }},
      {{"--rank"},
       "R",
       "the steps of one rank only",
       [&](const std::string& name, const std::string& value) {
         options.rank = static_cast<Rank>(parse_int(name, value, 0, 63));
       }},
      {{"--svg"},
       "FILE",
       "draw it: ranks from top to bottom, steps from left to right",
       [&](const std::string& name, const std::string& value) {
         if (value.empty()) throw UsageError(fmt::format("{} needs a file", name));
         options.svg = value;
       }},
  };
}

constexpr const char* kHelp = R"(Examples:
  lockstep plan all_reduce ring                    who sends which chunk to whom, step by step
  lockstep plan all_reduce ring --rank 0           the steps of rank 0, with what it does to what arrives
  lockstep plan broadcast tree -n 8 --svg b.svg    a picture of it

Shows the plan of an algorithm, the very list that the library runs.

Usage: lockstep plan OP ALGORITHM [flags]

)";

}  // namespace

int plan(std::span<const std::string> arguments) {
  Options options;
  const auto flags = flags_for(options);
  if (asks_for_help(arguments)) {
    fmt::print("{}{}", kHelp, describe_flags(flags));
    return kExitOk;
  }
  if (arguments.empty()) {
    fmt::print(stderr, "{}{}", kHelp, describe_flags(flags));
    return kExitUsage;
  }
  const auto words = read_flags(flags, "plan", arguments);
  if (words.size() != 2) throw UsageError("an op and an algorithm are needed", "lockstep plan all_reduce ring");
  const Op op = parse_op("OP", words[0]);
  const Algorithm algorithm = parse_algorithm("ALGORITHM", words[1]);
  if (algorithm == Algorithm::direct)
    throw UsageError("direct has no plan: it sends no messages", "docs/allreduce.md shows what it does");
  if (algorithm == Algorithm::automatic)
    throw UsageError("auto is a choice among plans, not one of them", "lockstep plan all_reduce ring");
  if (options.rank && !options.svg.empty()) throw UsageError("a picture shows all ranks", "--rank or --svg, not both");
  if (options.rank && *options.rank >= options.ranks)
    throw UsageError(fmt::format("there is no rank {} among {}", *options.rank, options.ranks));
  check_can_write("--svg", options.svg);

  const auto playback = collectives::play(op, algorithm, options.ranks);
  if (options.rank) {
    fmt::print("{}", describe(collectives::make_plan(op, algorithm, *options.rank, options.ranks)));
    return kExitOk;
  }
  fmt::print("{} by {}, {} ranks, {} {}\n{}", name_of(op), name_of(algorithm), options.ranks, playback.chunks,
             playback.chunks == 1 ? "chunk" : "chunks", collectives::text_of(playback));
  if (!options.svg.empty())
    write_and_say(options.svg,
                  collectives::svg_of(playback, fmt::format("{} by {}, {} ranks. The number in a chunk: how many "
                                                            "ranks' shares are in it.",
                                                            name_of(op), name_of(algorithm), options.ranks)));
  return kExitOk;
}

}  // namespace lockstep::cli
