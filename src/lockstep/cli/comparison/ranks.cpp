// `lockstep compare ranks`: the same training in one process and on several ranks. It is what `./dev run` shows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/cpu.h"
#include "lockstep/base/environment.h"
#include "lockstep/cli/comparison/comparisons.h"
#include "lockstep/cli/comparison/model_flags.h"
#include "lockstep/cli/comparison/ranks_report.h"
#include "lockstep/cli/comparison/runs.h"
#include "lockstep/cli/files.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/start.h"
#include "lockstep/cli/training/options.h"
#include "lockstep/error.h"
#include "lockstep/training.h"

namespace lockstep::cli::comparison {
namespace {

using nlohmann::json;
using train::StrategyKind;

constexpr const char* kExamples = R"(Examples:
  lockstep compare ranks                          one process against one rank per core
  lockstep compare ranks --depth 16 --dim 128 --batch 32
                                                  a small batch: there is little to share out
  lockstep compare ranks --depth 16 --dim 1024 --batch 64
                                                  a large model: 67 MB of gradients in every step
  lockstep compare ranks --model transformer --vocabulary 8192
                                                  a large embedding
  lockstep compare ranks --strategy sharded       each rank runs the optimizer for its part of the parameters

Trains the same model three times: in one process with one thread, in one process with a thread for each core, and on
several ranks with one thread each. Prints the time of a step, whether the losses agree, and where the time went.

Usage: lockstep compare ranks [flags]

)";

constexpr const char* kNotes = R"(
The sides take turns, and each number is the median over the rounds. Speed-ups are relative to one process with one
thread. It starts the ranks itself: do not run it under lockstep run.
)";

constexpr int kLeastRanks = 2, kMostRanks = 8;
constexpr std::int64_t kBatch = 1024, kSmallBatch = 64;

struct Options {
  int ranks = std::clamp(allowed_cores(), kLeastRanks, kMostRanks);
  StrategyKind strategy = StrategyKind::ddp;
  model::ModelConfig model{.dim = 256, .depth = 4};
  std::int64_t batch = 0;  // 0: the default of the model
  std::int64_t steps = 25;
  double lr = 3e-4;
  int rounds = 5;
  std::string out;
  bool json = false;
};

std::vector<Flag> flags_for(Options& o) {
  using S = const std::string&;
  const auto count = [](std::int64_t& place) { return [&place](S n, S v) { place = parse_int(n, v, 1, 1 << 24); }; };
  std::vector<Flag> flags = {
      {{"-n", "--ranks"},
       "N",
       "default one for each core, at least 2 and at most 8",
       [&](S n, S v) { o.ranks = static_cast<int>(parse_int(n, v, 2, 4096)); }},
      {{"--strategy"},
       "NAME",
       "of the ranks: naive, hooks, ddp (default), sharded",
       [&](S, S v) { o.strategy = train::kStrategies.parse(v); }},
      {{"--batch"},
       "N",
       fmt::format("samples per step, over all ranks; default {} for an mlp and {} for other models", kBatch,
                   kSmallBatch),
       count(o.batch)},
      {{"--steps"}, "N", "default 25; the first 5 steps, but at most half of all steps, are not timed", count(o.steps)},
      {{"--lr"}, "X", "learning rate; default 0.0003", [&](S n, S v) { o.lr = parse_number(n, v, 0); }},
      {{"--rounds"},
       "N",
       "how often each side takes its turn; default 5",
       [&](S n, S v) { o.rounds = static_cast<int>(parse_int(n, v, 1, 1000)); }},
      {{"--out"}, "FILE", "write the result there too, as JSON", [&](S, S v) { o.out = v; }},
      {{"--json"}, nullptr, "print the result as one JSON document", [&](S, S) { o.json = true; }},
  };
  const std::vector<Flag> of_model = model_flags(o.model);
  flags.insert(flags.begin() + 2, of_model.begin(), of_model.end());
  return flags;
}

struct Side {
  std::string name;
  StrategyKind strategy = StrategyKind::single;
  int ranks = 1;
  int threads = 1;  // threads of each rank
};

std::vector<Side> sides_of(const Options& o) {
  const int cores = allowed_cores();
  std::vector<Side> sides{{"one process, one thread", StrategyKind::single, 1, 1}};
  if (cores > 1) sides.push_back({"one process, all cores", StrategyKind::single, 1, cores});
  sides.push_back({fmt::format("{} ranks, {}", o.ranks, name_of(o.strategy)), o.strategy, o.ranks, 1});
  return sides;
}

std::vector<std::string> command_of(const Options& o, const Side& side) {
  std::vector<std::string> command{torch_program("compare ranks"), "train"};
  const auto add = [&](const char* flag, const auto& value) {
    command.emplace_back(flag);
    command.push_back(fmt::format("{}", value));
  };
  add("--strategy", name_of(side.strategy));
  add("--ranks", side.ranks);
  const std::vector<std::string> model = train_flags(o.model);
  command.insert(command.end(), model.begin(), model.end());
  if (o.model.kind == model::ModelKind::mlp) add("--data", name_of(data::DataKind::teacher));
  add("--batch", o.batch);
  add("--steps", o.steps);
  add("--lr", o.lr);
  add("--progress-fd", -1);
  return command;
}

// Checks everything before a rank starts, so that a wrong flag gives one line.
void check(const Options& o) {
  for (const Side& side : sides_of(o)) {
    const auto command = command_of(o, side);
    static_cast<void>(training::parse(std::span(command).subspan(2), 0));
  }
  if (o.strategy == StrategyKind::single || o.strategy == StrategyKind::manual ||
      o.strategy == StrategyKind::manual_pipeline || o.strategy == StrategyKind::pipeline)
    throw UsageError(fmt::format("--strategy {} does not give each rank a copy of the model", name_of(o.strategy)),
                     "--strategy ddp");
  check_can_write("--out", o.out);
}

json run_side(const Options& o, const Side& side) {
  ::setenv("OMP_NUM_THREADS", std::to_string(side.threads).c_str(), 1);
  const json d = training_run(side.ranks, command_of(o, side));
  return {{"name", side.name},
          {"strategy", name_of(side.strategy)},
          {"ranks", side.ranks},
          {"threads", side.threads},
          {"step_ms", d["step_ms"]},
          {"phase_ms", d["phase_ms"]},
          {"losses", d["losses"]},
          {"parameters", d["parameters"]},
          {"gradient_bytes", d["gradient_bytes"]},
          {"weights_agree", d["weights_agree"]}};
}

// The larger of two numbers, where NaN counts as the largest.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

// The largest relative difference between the first `count` losses of two lists.
double difference(const json& a, const json& b, std::size_t count) {
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), count); ++i) {
    if (a[i].is_null() || b[i].is_null()) return std::nan("");
    const double x = a[i], y = b[i];
    most = std::max(most, std::abs(x - y) / std::max({std::abs(x), std::abs(y), 1e-30}));
  }
  return most;
}

// The path of this program as a user would type it in the current folder.
std::string shown_program() {
  const std::filesystem::path program = this_program(), near = std::filesystem::proximate(program);
  return near.native().starts_with("..") ? program.string() : near.string();
}

// Medians over the rounds. Only the parts of a step come from one round, the one with the median step, because medians
// of parts do not add up.
json of_median_round(const std::vector<json>& rounds) {
  json row = medians(rounds);
  for (const json& one : rounds)
    if (one["step_ms"]["p50"] == row["step_ms"]["p50"]) row["phase_ms"] = one["phase_ms"];
  return row;
}

json compare(const Options& o) {
  const std::vector<Side> sides = sides_of(o);
  std::vector<std::vector<json>> rounds(sides.size());
  Countdown countdown(o.rounds * static_cast<int>(sides.size()));
  for (int round = 0; round < o.rounds; ++round)
    for (std::size_t i = 0; i < sides.size(); ++i) {
      countdown.next(sides[i].name);
      rounds[i].push_back(run_side(o, sides[i]));
    }
  json d = {{"comparison", "ranks"}, {"program", shown_program()}, {"cores", allowed_cores()}, {"batch", o.batch},
            {"steps", o.steps},      {"rounds", o.rounds},         {"rows", json::array()}};
  d.update(model_fields(o.model));
  for (const auto& one : rounds) d["rows"].push_back(of_median_round(one));
  const json& alone = d["rows"].front();
  for (std::size_t i = 0; i < sides.size(); ++i) {
    json& row = d["rows"][i];
    row["speedup"] = alone["step_ms"]["p50"].get<double>() / row["step_ms"]["p50"].get<double>();
    double first = 0, all = 0;  // largest differences over all rounds
    for (const json& run : rounds[i]) {
      first = larger(first, difference(alone["losses"], run["losses"], 2));
      all = larger(all, difference(alone["losses"], run["losses"], run["losses"].size()));
      row["weights_agree"] = row["weights_agree"].get<bool>() && run["weights_agree"].get<bool>();
    }
    row["first_losses_difference"] = first;
    row["loss_difference"] = all;
  }
  return d;
}

}  // namespace

int compare_ranks(std::span<const std::string> arguments) {
  Options options;
  const auto flags = flags_for(options);
  if (asks_for_help(arguments)) {
    fmt::print("{}{}{}", kExamples, describe_flags(flags), kNotes);
    return kExitOk;
  }
  const auto words = read_flags(flags, "compare ranks", arguments);
  training::check_model_flags(options.model.kind, given_flags(flags, "compare ranks", arguments));
  if (options.batch == 0) options.batch = options.model.kind == model::ModelKind::mlp ? kBatch : kSmallBatch;
  if (!words.empty())
    throw UsageError(fmt::format("compare ranks: what is '{}'?", words.back()), "lockstep compare ranks --help");
  if (is_rank())
    throw UsageError("compare starts its own ranks, and this is one already", "lockstep compare, without a launcher");
  check(options);
  const json document = compare(options);
  if (options.json)
    fmt::print("{}\n", document.dump());
  else
    fmt::print("{}", describe_ranks(document));
  if (!options.out.empty()) {
    write_and_say(options.out, document.dump(1) + "\n");
  }
  return sides_agree(document) ? kExitOk : kExitVerification;
}

}  // namespace lockstep::cli::comparison
