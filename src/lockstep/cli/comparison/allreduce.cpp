// `lockstep compare allreduce`: the algorithms side by side, what each costs, and why the fastest one is faster.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/cli/benchmark/options.h"
#include "lockstep/cli/comparison/chart.h"
#include "lockstep/cli/comparison/comparisons.h"
#include "lockstep/cli/files.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/start.h"
#include "lockstep/cli/wrap.h"
#include "lockstep/error.h"
#include "lockstep/measure/formulas.h"
#include "lockstep/measure/winner.h"

namespace lockstep::cli::comparison {
namespace {

using measure::Contender;
using nlohmann::json;

constexpr const char* kExamples = R"(Examples:
  lockstep compare allreduce                             all algorithms, 2 and 4 ranks, 8 bytes to 16 MB
  lockstep compare allreduce --svg allreduce.svg         and draw time against size
  lockstep compare allreduce --transport tcp --ranks 3 --sizes 1K,1M
  lockstep compare allreduce --algorithm ring,tree,direct --json

Times the all-reduce algorithms side by side, interleaved round by round, and says why the fastest one wins.

Usage: lockstep compare allreduce [flags]

)";

constexpr const char* kNotes = R"(
time      p50 of a call on the slowest rank, as in lockstep bench.
messages, bytes sent
          What the busiest rank sent in one call; in brackets, what the formula in docs/allreduce.md gives.
steps     The number of steps that must follow one another, from the same formula.

It starts the ranks itself: do not run it under lockstep run.
)";

struct Options {
  std::vector<std::string> ranks = {"2", "4"};
  std::string sizes = "8,1K,32K,256K,2M,16M";
  std::string algorithms = "all";
  std::string transport = "auto";
  std::string rounds = "5";
  std::string buffer;
  std::string svg;
  bool json = false;
};

std::vector<Flag> flags(Options& o) {
  using S = const std::string&;
  return {
      {{"-n", "--ranks"},
       "LIST",
       "numbers of ranks; default 2,4",
       [&](S n, S v) {
         for (S item : o.ranks = split_list(n, v)) parse_int(n, item, 2, 4096);
       }},
      {{"--sizes"}, "LIST", "bytes, with K, M, G; default 8,1K,32K,256K,2M,16M", [&](S, S v) { o.sizes = v; }},
      {{"--algorithm"}, "LIST", "default: all", [&](S, S v) { o.algorithms = v; }},
      {{"--transport"}, "NAME", "auto (default), shm or tcp", [&](S, S v) { o.transport = v; }},
      {{"--buffer"}, "KIND", "arena (default over shm) or private", [&](S, S v) { o.buffer = v; }},
      {{"--rounds"}, "N", "default 5", [&](S, S v) { o.rounds = v; }},
      {{"--svg"},
       "FILE",
       "draw time against size",
       [&](S n, S v) {
         if (v.empty()) throw UsageError(fmt::format("{} is empty", n), "--svg allreduce.svg");
         o.svg = v;
       }},
      {{"--json"}, nullptr, "print the result as one JSON document", [&](S, S) { o.json = true; }},
  };
}

// All algorithms with one number of ranks at one size.
struct Contest {
  int ranks = 0;
  int cores = 0;
  std::size_t bytes = 0;
  std::string transport;
  std::vector<Contender> contenders;
};

void add_results(const json& document, std::vector<Contest>& contests) {
  for (const json& row : document["results"]) {
    const int ranks = row["ranks"];
    const std::size_t bytes = row["bytes"];
    if (contests.empty() || contests.back().ranks != ranks || contests.back().bytes != bytes)
      contests.push_back({ranks, document["cores"], bytes, row["transport"], {}});
    const Algorithm algorithm = parse_algorithm("the result", row["algorithm"].get<std::string>());
    const auto formula = measure::all_reduce_cost(algorithm, ranks, static_cast<double>(bytes));
    Contender& one = contests.back().contenders.emplace_back();
    one.algorithm = algorithm;
    one.microseconds = row["time_us"]["p50"];
    one.messages = row["sent"]["messages"];
    one.bytes = row["sent"]["bytes"];
    one.messages_of_all = row["sent_by_all"]["messages"];
    one.steps = formula.steps;
    one.summed = formula.summed;
  }
}

std::string table(const Contest& contest) {
  std::string text =
      fmt::format("all_reduce of {} over {}, {} ranks on {} cores\n", brief_bytes(static_cast<double>(contest.bytes)),
                  contest.transport, contest.ranks, contest.cores);
  text += fmt::format("  {:<17}{:>11}{:>9}  {:>12}  {:>18}  {:>5}\n", "algorithm", "time (us)", "x best", "messages",
                      "bytes sent", "steps");
  const double best = measure::winner(contest.contenders).microseconds;
  for (const Contender& one : contest.contenders) {
    const auto formula = measure::all_reduce_cost(one.algorithm, contest.ranks, static_cast<double>(contest.bytes));
    text += fmt::format("  {:<17}{:>11.2f}{:>9.2f}  {:>12}  {:>18}  {:>5}\n", name_of(one.algorithm), one.microseconds,
                        one.microseconds / best, fmt::format("{:.0f} ({})", one.messages, formula.messages),
                        fmt::format("{} ({})", brief_bytes(one.bytes), brief_bytes(formula.bytes)), formula.steps);
  }
  return text + wrap(measure::why_it_wins(contest.contenders), "  ", "  ") + "\n\n";
}

json as_json(const std::vector<Contest>& contests) {
  json list = json::array();
  for (const Contest& contest : contests) {
    json rows = json::array();
    for (const Contender& one : contest.contenders) {
      const auto formula = measure::all_reduce_cost(one.algorithm, contest.ranks, static_cast<double>(contest.bytes));
      rows.push_back(
          {{"algorithm", name_of(one.algorithm)},
           {"time_us", one.microseconds},
           {"sent", {{"messages", one.messages}, {"bytes", one.bytes}, {"messages_of_all", one.messages_of_all}}},
           {"formula", {{"steps", formula.steps}, {"messages", formula.messages}, {"bytes", formula.bytes}}}});
    }
    list.push_back({{"ranks", contest.ranks},
                    {"cores", contest.cores},
                    {"bytes", contest.bytes},
                    {"transport", contest.transport},
                    {"winner", name_of(measure::winner(contest.contenders).algorithm)},
                    {"why", measure::why_it_wins(contest.contenders)},
                    {"rows", rows}});
  }
  return {{"op", "all_reduce"}, {"comparisons", list}};
}

void draw(const std::vector<Contest>& contests, const std::string& path) {
  std::vector<Panel> panels;
  int ranks = 0;
  for (const Contest& contest : contests) {
    if (contest.ranks != ranks)
      panels.push_back({fmt::format("{} ranks on {} cores", contest.ranks, contest.cores), {}});
    ranks = contest.ranks;
    auto& lines = panels.back().series;
    for (const Contender& one : contest.contenders) {
      auto line =
          std::find_if(lines.begin(), lines.end(), [&](const auto& s) { return s.name == name_of(one.algorithm); });
      if (line == lines.end()) line = lines.insert(lines.end(), {name_of(one.algorithm), {}});
      line->points.emplace_back(static_cast<double>(contest.bytes), one.microseconds);
    }
  }
  write_and_say(path, time_against_size("All-reduce over " + contests[0].transport + ": time against size", panels));
}

}  // namespace

int compare_allreduce(std::span<const std::string> arguments) {
  Options options;
  if (asks_for_help(arguments)) {
    fmt::print("{}{}{}", kExamples, describe_flags(flags(options)), kNotes);
    return kExitOk;
  }
  const auto words = read_flags(flags(options), "compare allreduce", arguments);
  if (!words.empty())
    throw UsageError(fmt::format("compare allreduce: what is '{}'?", words.back()),
                     "lockstep compare allreduce --help");
  if (is_rank())
    throw UsageError("compare starts its own ranks, and this is one already", "lockstep compare, without a launcher");
  for (const std::string& one : {options.transport, options.buffer})
    if (one.find(',') != std::string::npos)
      throw UsageError(fmt::format("'{}': one transport and one kind of buffer at a time", one),
                       "lockstep bench all_reduce, which takes several");
  check_can_write("--svg", options.svg);
  std::vector<Contest> contests;
  for (const std::string& ranks : options.ranks) {
    std::vector<std::string> command{"bench",       "all_reduce",      "--ranks",     ranks,
                                     "--size",      options.sizes,     "--algorithm", options.algorithms,
                                     "--transport", options.transport, "--rounds",    options.rounds,
                                     "--no-limits"};
    if (!options.buffer.empty()) command.insert(command.end(), {"--buffer", options.buffer});
    // Reports what is wrong before anything starts.
    const auto parsed = benchmark::parse(std::span(command).subspan(1));
    command.insert(command.begin(), this_program());
    const auto outcome = start_ranks(*parsed.ranks, command);
    if (outcome.exit_code != kExitOk) return outcome.exit_code;
    const std::size_t shown = contests.size();
    add_results(json::parse(outcome.result), contests);
    for (std::size_t i = shown; i < contests.size() && !options.json; ++i) fmt::print("{}", table(contests[i]));
    std::fflush(stdout);
  }
  if (options.json) fmt::print("{}\n", as_json(contests).dump());
  if (!options.svg.empty()) draw(contests, options.svg);
  return kExitOk;
}

}  // namespace lockstep::cli::comparison
