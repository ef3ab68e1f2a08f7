// `lockstep compare`: ways of doing the same thing, timed side by side.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "lockstep/base/suggest.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/comparison/comparisons.h"
#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

struct Comparison {
  const char* name;
  const char* summary;
  int (*function)(std::span<const std::string> arguments);
};

constexpr Comparison kComparisons[] = {
    {"allreduce", "all-reduce algorithms over sizes and ranks, and why the fastest one wins",
     comparison::compare_allreduce},
    {"hooks", "gradients that travel during backward against those that wait for its end", comparison::compare_hooks},
    {"overlap", "buckets that are reduced during backward, and after it", comparison::compare_overlap},
    {"buckets", "one all-reduce per parameter against buckets of several sizes", comparison::compare_buckets},
    {"ranks", "one process against several ranks: time of a step, losses, where the time goes",
     comparison::compare_ranks},
    {"schedules", "pipelines: bubble, activations, memory and time of each schedule", comparison::compare_schedules},
};

void print_help() {
  fmt::print(R"(Examples:
  lockstep compare ranks                           what data parallelism gains on this machine
  lockstep compare allreduce --svg allreduce.svg   which algorithm is fastest at which size, and why
  lockstep compare hooks --ranks 2                 gradients that travel as soon as they are there
  lockstep compare overlap --svg overlap.svg       when communication should run beside backward
  lockstep compare buckets --ranks 2               how large a bucket should be
  lockstep compare schedules --stages 4            which pipeline schedule is idle least
  lockstep compare hooks --help                    all about one of them

Usage: lockstep compare WHAT [flags]

)");
  for (const Comparison& one : kComparisons) fmt::print("  {:<11}{}\n", one.name, one.summary);
}

}  // namespace

int compare(std::span<const std::string> arguments) {
  if (arguments.empty())
    throw UsageError("nothing to compare", "lockstep compare ranks, allreduce, hooks, overlap, buckets or schedules");
  if (arguments[0] == "--help" || arguments[0] == "-h") {
    print_help();
    return kExitOk;
  }
  std::vector<std::string> names;
  for (const Comparison& one : kComparisons) {
    names.emplace_back(one.name);
    if (arguments[0] == one.name) return one.function(arguments.subspan(1));
  }
  if (arguments[0] == "all_reduce") return comparison::compare_allreduce(arguments.subspan(1));
  throw UsageError(fmt::format("cannot compare '{}'", arguments[0]),
                   "lockstep compare " + closest(arguments[0], names).value_or("allreduce"));
}

}  // namespace lockstep::cli
