// `lockstep compare schedules`: trains one pipeline in the order of each schedule. Every row is a training run in
// processes of its own, so its memory is that of one schedule alone.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/cpu.h"
#include "lockstep/base/environment.h"
#include "lockstep/cli/comparison/comparisons.h"
#include "lockstep/cli/comparison/model_flags.h"
#include "lockstep/cli/comparison/runs.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/scheduling/times.h"
#include "lockstep/cli/start.h"
#include "lockstep/cli/training/options.h"
#include "lockstep/error.h"
#include "lockstep/schedule.h"

namespace lockstep::cli::comparison {
namespace {

using nlohmann::json;

constexpr const char* kExamples = R"(Examples:
  lockstep compare schedules                              4 stages, 8 microbatches, an MLP of 16 x 512
  lockstep compare schedules --stages 2 --dim 1024 --batch 256
                                                          arithmetic that 2 cores can really do at once
  lockstep compare schedules --stages 8 --microbatches 16 --emulate-compute 10ms,10ms,10ms
                                                          as on 8 devices: stages wait instead of computing
  lockstep compare schedules --schedules 1f1b,zb-h1,mine.csv --json
  lockstep compare schedules --model transformer --vocabulary 8192 --stages 2
                                                          stages that differ: embedding, blocks, output

Trains the same model in the order of each schedule, and prints predicted and measured times side by side.

Usage: lockstep compare schedules [flags]

)";

constexpr const char* kNotes = R"(
idle: idle time (bubble and messages) divided by the time from the first action to the end of the last; mean over
ranks. It is predicted from the times that F and B (or I and W) took in that very run, or from the emulated ones.
held: the largest number of activations that one rank kept at once. memory: the largest resident memory of one rank.
Emulated times are given per rank and microbatch: a rank with V stages waits 1/V of them in each stage.
It starts the ranks itself: do not run it under lockstep run.
)";

struct Options {
  int stages = 4;
  int microbatches = 8;
  int virtual_stages = 2;
  model::ModelConfig model{.dim = 512, .depth = 16};
  std::int64_t batch = 64;
  int steps = 10;
  int rounds = 1;
  std::vector<std::string> schedules = pipeline::schedule_names();
  std::optional<pipeline::Times> emulate;  // in seconds; none means real arithmetic
  bool recompute = false;
  TransportKind transport = TransportKind::automatic;
  bool json = false;
};

std::vector<Flag> flags_for(Options& o) {
  using S = const std::string&;
  const auto number = [](int& place) {
    return [&place](S n, S v) { place = static_cast<int>(parse_int(n, v, 1, 4096)); };
  };
  const auto count = [](std::int64_t& place) { return [&place](S n, S v) { place = parse_int(n, v, 1, 1 << 24); }; };
  std::vector<Flag> flags = {
      {{"-n", "--ranks", "--stages"}, "N", "ranks of the pipeline; default 4", number(o.stages)},
      {{"--microbatches"}, "N", "default 8", number(o.microbatches)},
      {{"--virtual-stages"}, "N", "interleaved: stages on each rank; default 2", number(o.virtual_stages)},
      {{"--schedules"}, "LIST", "default all", [&](S n, S v) { o.schedules = split_list(n, v); }},
      {{"--batch"}, "N", "samples per step; default 64", count(o.batch)},
      {{"--steps"}, "N", "timed steps of each schedule, after 3 that are not timed; default 10", number(o.steps)},
      {{"--rounds"},
       "N",
       "number of rounds, in each of which every schedule runs once; medians are shown; default 1",
       number(o.rounds)},
      {{"--emulate-compute"},
       "F,I,W",
       "times such as 10ms,10ms,10ms that a rank waits per microbatch instead of computing",
       [&](S n, S v) { o.emulate = scheduling::parse_durations(n, v); }},
      {{"--recompute"},
       nullptr,
       "keep inputs only, and run forward again before backward",
       [&](S, S) { o.recompute = true; }},
      {{"--transport"}, "NAME", "auto (default), shm or tcp", [&](S, S v) { o.transport = parse_transport(v); }},
      {{"--json"}, nullptr, "print the result as one JSON document", [&](S, S) { o.json = true; }},
  };
  const std::vector<Flag> of_model = model_flags(o.model);
  flags.insert(flags.begin() + 4, of_model.begin(), of_model.end());
  return flags;
}

constexpr int kWarmUp = 3;

std::vector<std::string> common(const Options& o) {
  std::vector<std::string> command{torch_program("compare schedules"),
                                   "train",
                                   "--batch",
                                   std::to_string(o.batch),
                                   "--steps",
                                   std::to_string(kWarmUp + o.steps),
                                   "--warmup",
                                   std::to_string(kWarmUp),
                                   "--transport",
                                   name_of(o.transport),
                                   "--progress-fd",
                                   "-1"};
  const std::vector<std::string> model = train_flags(o.model);
  command.insert(command.end(), model.begin(), model.end());
  return command;
}

json run(int ranks, std::vector<std::string> command, const std::vector<std::string>& more) {
  command.insert(command.end(), more.begin(), more.end());
  return training_run(ranks, command);
}

std::vector<std::string> flags_of(const Options& o, const std::string& name) {
  std::vector<std::string> more{"--strategy",     "pipeline",
                                "--schedule",     name,
                                "--ranks",        std::to_string(o.stages),
                                "--microbatches", std::to_string(o.microbatches)};
  if (name == "interleaved") more.insert(more.end(), {"--virtual-stages", std::to_string(o.virtual_stages)});
  if (o.recompute) more.emplace_back("--recompute");
  if (o.emulate)
    more.insert(more.end(), {"--emulate-compute", fmt::format("{:.3f}us,{:.3f}us,{:.3f}us", 1e6 * o.emulate->forward,
                                                              1e6 * o.emulate->input, 1e6 * o.emulate->weight)});
  return more;
}

// Checks the options before any rank starts, so that an error is printed once, and not by every rank.
void check(const Options& o) {
  for (const std::string& name : o.schedules) {
    std::vector<std::string> command = common(o);
    const std::vector<std::string> more = flags_of(o, name);
    command.insert(command.end(), more.begin(), more.end());
    static_cast<void>(training::parse(std::span(command).subspan(2), 0));
  }
}

json run_schedule(const Options& o, const std::string& name) {
  const json d = run(o.stages, common(o), flags_of(o, name));
  const json& p = d["pipeline"];
  const auto largest = [](const json& list) { return *std::max_element(list.begin(), list.end()); };
  return {{"name", p["schedule"]},
          {"step_ms", d["step_ms"]["p50"]},
          {"bubble_predicted", p["bubble_predicted"]},
          {"bubble_measured", p["bubble_measured"]},
          {"predicted_ms", p["predicted_ms"]},
          {"measured_ms", p["measured_ms"]},
          {"peak_activations", largest(p["peak_activations"])},
          {"memory_bytes", largest(d["peak_memory_bytes"])},
          {"messages", p["messages"]}};
}

// The time that one rank needs for the same batch, at once and in microbatches: small matrix products are less
// efficient.
json run_alone(const Options& o) {
  const auto step = [&](int parts) {
    return run(1, common(o), {"--strategy", "single", "--accumulate", std::to_string(parts)})["step_ms"]["p50"]
        .get<double>();
  };
  return {{"whole_ms", step(1)}, {"parts_ms", step(o.microbatches)}};
}

json compare(const Options& o) {
  json d = {{"comparison", "schedules"},
            {"stages", o.stages},
            {"microbatches", o.microbatches},
            {"batch", o.batch},
            {"steps", o.steps},
            {"rounds", o.rounds},
            {"cores", allowed_cores()},
            {"emulated", o.emulate.has_value()},
            {"rows", json::array()}};
  d.update(model_fields(o.model));
  std::vector<std::vector<json>> rows(o.schedules.size());
  std::vector<json> alone;
  Countdown countdown(o.rounds * static_cast<int>(o.schedules.size()));
  for (int round = 0; round < o.rounds; ++round) {
    for (std::size_t i = 0; i < o.schedules.size(); ++i) {
      countdown.next(o.schedules[i]);
      rows[i].push_back(run_schedule(o, o.schedules[i]));
    }
    if (!o.emulate) alone.push_back(run_alone(o));
  }
  for (const auto& one : rows) d["rows"].push_back(medians(one));
  if (!alone.empty()) d["one_rank"] = medians(alone);
  return d;
}

void show(const json& d) {
  const int stages = d["stages"];
  const int cores = d["cores"];
  fmt::print("{}, batch {} in {} microbatches, {} ranks\n", model_title(d), d["batch"].get<int>(),
             d["microbatches"].get<int>(), stages);
  if (d["emulated"].get<bool>())
    fmt::print("EMULATED COMPUTE: stages wait instead of computing; processes, messages and schedules are real\n");
  else if (stages > cores)
    fmt::print(
        "{} ranks share {} cores, so they can't all compute at once: measured bubbles are larger. As on {} devices: "
        "--emulate-compute 10ms,10ms,10ms\n",
        stages, cores, stages);
  fmt::print("\n{:<14}{:>18}{:>27}\n", "", "idle", "forward and backward ms");
  fmt::print("{:<14}{:>9}{:>9}{:>15}{:>12}{:>12}{:>7}{:>11}{:>11}\n", "schedule", "predicted", "measured", "predicted",
             "measured", "step ms", "held", "memory MB", "messages");
  for (const json& row : d["rows"])
    fmt::print("{:<14}{:>8.1f}%{:>8.1f}%{:>15.2f}{:>12.2f}{:>12.2f}{:>7}{:>11.0f}{:>11}\n",
               row["name"].get<std::string>(), 100 * row["bubble_predicted"].get<double>(),
               100 * row["bubble_measured"].get<double>(), row["predicted_ms"].get<double>(),
               row["measured_ms"].get<double>(), row["step_ms"].get<double>(), row["peak_activations"].get<int>(),
               row["memory_bytes"].get<double>() / 1e6, row["messages"].get<int>());
  if (d.contains("one_rank")) {
    const double whole = d["one_rank"]["whole_ms"], parts = d["one_rank"]["parts_ms"];
    fmt::print(
        "\nsmall microbatches   one rank takes {:.2f} ms for the batch at once, and {:.2f} in {} parts: {:+.0f}%\n",
        whole, parts, d["microbatches"].get<int>(), 100 * (parts / whole - 1));
  }
}

}  // namespace

int compare_schedules(std::span<const std::string> arguments) {
  Options options;
  const auto flags = flags_for(options);
  if (asks_for_help(arguments)) {
    fmt::print("{}{}{}", kExamples, describe_flags(flags), kNotes);
    return kExitOk;
  }
  const auto words = read_flags(flags, "compare schedules", arguments);
  training::check_model_flags(options.model.kind, given_flags(flags, "compare schedules", arguments));
  if (!words.empty())
    throw UsageError(fmt::format("compare schedules: what is '{}'?", words.back()),
                     "lockstep compare schedules --help");
  if (is_rank())
    throw UsageError("compare starts its own ranks, and this is one already", "lockstep compare, without a launcher");
  ::setenv("OMP_NUM_THREADS", "1", 1);  // one core per rank, even if there is only one rank
  check(options);
  const json document = compare(options);
  if (options.json)
    fmt::print("{}\n", document.dump());
  else
    show(document);
  return kExitOk;
}

}  // namespace lockstep::cli::comparison
