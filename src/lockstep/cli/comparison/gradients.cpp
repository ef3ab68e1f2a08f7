// `lockstep compare hooks`, `overlap` and `buckets`: the process that the user starts.
#include "lockstep/cli/comparison/gradients.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/cli/comparison/comparisons.h"
#include "lockstep/cli/comparison/model_flags.h"
#include "lockstep/cli/comparison/timeline.h"
#include "lockstep/cli/files.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/start.h"
#include "lockstep/cli/training/options.h"
#include "lockstep/error.h"

namespace lockstep::cli::comparison {
namespace {

using nlohmann::json;

constexpr const char* kHooksExamples = R"(Examples:
  lockstep compare hooks                            a 16-layer MLP of width 512 on 2 ranks
  lockstep compare hooks --dim 1024 --ranks 4
  lockstep compare hooks --svg hooks.svg            and draw one backward
  lockstep compare hooks --transport tcp --emulate-compute 1ms
                                                    as with a device that computes while the core is free: overlap pays

Trains the same model twice, step by step in turns: gradients that wait for the end of backward (naive), and gradients
that travel as soon as they are there (hooks). Then shows one backward with hooks, one line per parameter.

Usage: lockstep compare hooks [flags]

)";

constexpr const char* kOverlapExamples = R"(Examples:
  lockstep compare overlap                          a 16-layer MLP of width 512 on 2 ranks
  lockstep compare overlap --svg overlap.svg        and draw one backward of each kind
  lockstep compare overlap --transport tcp --emulate-compute 1ms
                                                    as with a device that computes while the core is free
  lockstep compare overlap --model cnn --bucket-mb 1

Trains the same model in four ways, step by step in turns: each gradient is reduced by itself after backward (naive),
and ddp, whose buckets are reduced after backward (overlap off), by a thread of their own while backward goes on
(overlap on), and in the way that ddp chooses by itself (auto). docs/overlap.md says when which one is right.

Usage: lockstep compare overlap [flags]

)";

constexpr const char* kBucketsExamples = R"(Examples:
  lockstep compare buckets                          a 16-layer MLP of width 512 on 2 ranks
  lockstep compare buckets --dim 128 --transport tcp
  lockstep compare buckets --buckets 0.25,1,4 --json
  lockstep compare buckets --model transformer --vocabulary 8192
                                                    a large embedding, whose gradient comes last

Trains the same model with buckets of several sizes, step by step in turns, and with one all-reduce per parameter.

Usage: lockstep compare buckets [flags]

)";

// The rows of `compare overlap`, in the order of contenders().
constexpr std::size_t kOverlapOff = 1, kOverlapOn = 2, kOverlapAuto = 3;

std::vector<Flag> flags(const std::string& what, GradientOptions& o) {
  using S = const std::string&;
  std::vector<Flag> all = {
      {{"-n", "--ranks"}, "N", "default 2", [&](S n, S v) { o.ranks = static_cast<int>(parse_int(n, v, 1, 4096)); }},
      {{"--batch"}, "N", "samples of all ranks; default 64", [&](S n, S v) { o.batch = parse_int(n, v, 1, 1 << 24); }},
      {{"--steps"},
       "N",
       "of each contender; default 20",
       [&](S n, S v) { o.steps = static_cast<int>(parse_int(n, v, 1, 1 << 20)); }},
      {{"--emulate-compute"},
       "TIME",
       "time such as 1ms that each layer's backward waits besides computing, as if for a device (--layer-wait of "
       "lockstep train); the core stays free",
       [&](S n, S v) { o.layer_wait = parse_seconds(n, v); }},
      {{"--transport"}, "NAME", "auto (default), shm or tcp", [&](S, S v) { o.transport = parse_transport(v); }},
      {{"--json"}, nullptr, "print the result as one JSON document", [&](S, S) { o.json = true; }},
      {{"--result"}, "FILE", "", [&](S, S v) { o.result = v; }},
  };
  const std::vector<Flag> of_model = model_flags(o.model, 1 << 16);
  all.insert(all.begin() + 1, of_model.begin(), of_model.end());
  if (what == "overlap")
    all.push_back({{"--bucket-mb"}, "X", "MiB at which a bucket is closed; default 4", [&](S n, S v) {
                     o.bucket_mb = parse_number(n, v, 0);
                   }});
  if (what != "buckets") all.push_back({{"--svg"}, "FILE", "draw the timeline", [&](S, S v) { o.svg = v; }});
  if (what == "buckets")
    all.push_back({{"--buckets"}, "LIST", "sizes in MiB; default 1,5,25,100", [&](S n, S v) {
                     o.buckets.clear();
                     for (S item : split_list(n, v)) {
                       const double size = parse_number(n, item, 0);
                       if (size <= 0 || size > 1e6)
                         throw UsageError(fmt::format("{}: a bucket of {} MiB", n, item), "--buckets 1,5,25,100");
                       o.buckets.push_back(size);
                     }
                   }});
  return all;
}

std::string title(const json& d) {
  std::string text = fmt::format(
      "{}, {} parameters in {} tensors, {} bytes of gradients;\n{} ranks over {}, batch {}\n", model_title(d),
      d["parameters"].get<std::int64_t>(), d["tensors"].get<int>(), d["gradient_bytes"].get<std::int64_t>(),
      d["ranks"].get<int>(), d["transport"].get<std::string>(), d["batch"].get<int>());
  if (const double ms = d["device_ms"]; ms > 0)
    text += fmt::format("Compute is emulated: each layer's backward also waits for {:g} ms.\n", ms);
  return text + "\n";
}

void show_rows(const json& d) {
  fmt::print("{}{:<19}{:>10}{:>13}{:>18}{:>12}\n", title(d), "", "step ms", "backward ms", "communication ms",
             "exposed ms");
  for (const json& row : d["rows"])
    fmt::print("{:<19}{:>10.2f}{:>13.2f}{:>18.2f}{:>12.2f}\n", row["name"].get<std::string>(),
               row["step_ms"].get<double>(), row["backward_ms"].get<double>(), row["communication_ms"].get<double>(),
               row["exposed_ms"].get<double>());
}

void show_hooks(const json& d) {
  show_rows(d);
  fmt::print("\nA step with hooks is {:.2f} times as fast. One backward with hooks, on rank 0:\n\n{}",
             d["speedup"].get<double>(), d["timeline"].get<std::string>());
}

void show_overlap(const json& d) {
  show_rows(d);
  const auto step = [&](std::size_t row) { return d["rows"][row]["step_ms"].get<double>(); };
  fmt::print(
      "\nA step with overlap is {:.2f} times as fast as one without. By itself, ddp chooses\n"
      "overlap {} here. exposed: the part of communication after backward.\n",
      step(kOverlapOff) / step(kOverlapOn), d["rows"][kOverlapAuto]["overlaps"].get<bool>() ? "on" : "off");
}

void show_buckets(const json& d) {
  fmt::print("{}{:<17}{:>6}{:>12}{:>9}{:>8}{:>9}{:>9}{:>10}\n", title(d), "buckets", "calls", "bytes/call", "step",
             "comm.", "exposed", "overlap", "speed-up");
  fmt::print("{:<17}{:>6}{:>12}{:>9}{:>8}{:>9}{:>9}{:>10}\n", "", "", "", "ms", "ms", "ms", "", "");
  for (const json& row : d["rows"])
    fmt::print("{:<17}{:>6}{:>12.0f}{:>9.2f}{:>8.2f}{:>9.2f}{:>8.0f}%{:>10.2f}\n", row["name"].get<std::string>(),
               row["calls"].get<int>(), row["bytes_per_call"].get<double>(), row["step_ms"].get<double>(),
               row["communication_ms"].get<double>(), row["exposed_ms"].get<double>(),
               100 * row["overlap"].get<double>(), row["speedup"].get<double>());
  fmt::print(
      "\nstep: the median, on the slowest rank. The others are means over the ranks, of\n"
      "the steps nearest to the median. comm.: all communication; exposed: the wait\n"
      "after backward; overlap: the share of comm. that ran during backward.\n");
}

Backward backward_from(const json& d) {
  Backward backward{.title = d.value("name", ""), .end = d["backward_end_us"]};
  for (const json& one : d["gradients"])
    backward.travels.push_back({one["parameter"], one["ready_us"], one["began_us"], one["ended_us"]});
  return backward;
}

void draw(const json& d, const std::string& path) {
  const bool hooks = d["comparison"] == "hooks";
  std::vector<Backward> all;
  for (const json& one : hooks ? json::array({d}) : d["backwards"]) all.push_back(backward_from(one));
  write_and_say(path, timeline(fmt::format("One backward{}: {}, {} ranks over {}, rank 0", hooks ? " with hooks" : "",
                                           model_title(d), d["ranks"].get<int>(), d["transport"].get<std::string>()),
                               all));
}

int compare_gradients(const std::string& what, std::span<const std::string> arguments, const char* examples,
                      void (*show)(const json&)) {
  if (asks_for_help(arguments)) {
    GradientOptions unused;
    fmt::print("{}{}\nIt starts the ranks itself: do not run it under lockstep run.\n", examples,
               describe_flags(flags(what, unused)));
    return kExitOk;
  }
  const GradientOptions options = parse_gradient_options(what, arguments);
  check_can_write("--svg", options.svg);
  if (is_rank())
    throw UsageError("compare starts its own ranks, and this is one already", "lockstep compare, without a launcher");
  std::vector<std::string> command{torch_program("compare " + what), "compare", what};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const Outcome outcome = start_ranks(options.ranks, command);
  if (outcome.exit_code != kExitOk) return outcome.exit_code;
  const json document = json::parse(outcome.result);
  if (options.json)
    fmt::print("{}\n", outcome.result);
  else
    show(document);
  if (!options.svg.empty()) draw(document, options.svg);
  return kExitOk;
}

}  // namespace

GradientOptions parse_gradient_options(const std::string& what, std::span<const std::string> arguments) {
  GradientOptions options;
  const std::string verb = "compare " + what;
  const auto known = flags(what, options);
  const auto words = read_flags(known, verb, arguments);
  training::check_model_flags(options.model.kind, given_flags(known, verb, arguments));
  if (!words.empty())
    throw UsageError(fmt::format("{}: what is '{}'?", verb, words.back()), "lockstep " + verb + " --help");
  if (options.batch < options.ranks)
    throw UsageError(fmt::format("a batch of {} on {} ranks", options.batch, options.ranks), "a larger --batch");
  static_cast<void>(contenders(what, options));
  return options;
}

std::vector<NamedConfig> contenders(const std::string& what, const GradientOptions& options) {
  constexpr int kWarmUp = 3;
  train::TrainingConfig config{.ranks = options.ranks,
                               .model = options.model,
                               .batch = options.batch,
                               .steps = kWarmUp + options.steps,
                               .warmup = kWarmUp,
                               .layer_wait = options.layer_wait,
                               .transport = options.transport};
  std::vector<NamedConfig> all;
  const auto add = [&](const std::string& name, train::StrategyKind strategy, std::optional<double> bucket_mb) {
    config.strategy = strategy;
    config.bucket_mb = bucket_mb;
    all.push_back({name, train::checked(config)});
  };
  if (what == "hooks") {
    add("after backward", train::StrategyKind::naive, {});
    add("hooks", train::StrategyKind::hooks, {});
    return all;
  }
  if (what == "overlap") {
    add("after backward", train::StrategyKind::naive, {});
    for (const Overlap overlap : {Overlap::off, Overlap::on, Overlap::automatic}) {
      config.overlap = overlap;
      add(fmt::format("ddp, overlap {}", name_of(overlap)), train::StrategyKind::ddp, options.bucket_mb);
    }
    return all;
  }
  constexpr double kOneByte = 1.0 / (1 << 20);
  add("one per parameter", train::StrategyKind::ddp, kOneByte);
  for (const double size : options.buckets) add(fmt::format("{:g} MiB", size), train::StrategyKind::ddp, size);
  return all;
}

int compare_hooks(std::span<const std::string> arguments) {
  return compare_gradients("hooks", arguments, kHooksExamples, show_hooks);
}
int compare_overlap(std::span<const std::string> arguments) {
  return compare_gradients("overlap", arguments, kOverlapExamples, show_overlap);
}
int compare_buckets(std::span<const std::string> arguments) {
  return compare_gradients("buckets", arguments, kBucketsExamples, show_buckets);
}

}  // namespace lockstep::cli::comparison
