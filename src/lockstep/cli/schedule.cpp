// `lockstep schedule`: draws a pipeline schedule, proves that it can run, and tells what it costs. No process is
// started.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <optional>

#include "lockstep/base/environment.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/files.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/scheduling/report.h"
#include "lockstep/cli/scheduling/times.h"
#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/schedule/csv.h"

namespace lockstep::cli {
namespace {

using namespace pipeline;

constexpr const char* kHelp = R"(Examples:
  lockstep schedule 1f1b --stages 4 --microbatches 8      a picture, the bubble, what each rank holds
  lockstep schedule interleaved --virtual-stages 2        two stages on every rank: a smaller bubble
  lockstep schedule v-half                                two stages on every rank, in half of the memory
  lockstep schedule zb-h1 --times 10,12,8 --svg zb.svg    with times of your own, and drawn
  lockstep schedule gpipe --csv > mine.csv                a list to start your own from
  lockstep schedule --verify mine.csv                     is it right, can it deadlock, what does it cost

Draws a pipeline schedule, proves it before anything runs, and predicts its cost, with messages that take no time.
NAME is one of naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zbv, v-half, v-min, dualpipev.

Usage: lockstep schedule NAME [flags]
       lockstep schedule --verify FILE [flags]

)";

constexpr const char* kNotes = R"(
An action is stage, kind, microbatch: 1F0 is the forward of microbatch 0 on stage 1. B is a backward, I and W its two
halves: the gradient of the input, which the stage before waits for, and those of the weights. B takes I + W.
The bubble is idle time divided by the makespan, mean over ranks. If steps overlap, a rank's time counts from its own
first action to its own last, and the longest one counts. An activation is held until its B or W is done.
A file has one line per rank and one action per cell; empty cells mean nothing. Sends and receives (0SEND_F0, 1RECV_F0)
are added unless the file has some. A receive in a file says from when on the message may come; the rank waits at the
action that needs it, as in PyTorch.
Steps count from 0; those of a deadlock are steps of the list that --csv --sends shows.
Exit code 3: the schedule of --verify can't run, and the line says why.
)";

struct Options {
  std::optional<int> stages;
  std::optional<int> microbatches;
  std::optional<int> virtual_stages;
  Times times;
  std::string svg;
  std::string file;
  bool csv = false;
  bool json = false;
  bool sends = false;
};

Times parse_times(const std::string& name, const std::string& value) {
  return scheduling::parse_times(name, value, "1,1,1", [&](const std::string&, const std::string& item) {
    const double time = parse_number(name, item, 0);
    if (time < 0.001 || time > 1e6)
      throw UsageError(fmt::format("{} is '{}': {} is not from 0.001 to 1000000", name, value, item), "--times 1,1,1");
    return time;
  });
}

std::vector<Flag> flags_for(Options& o) {
  using S = const std::string&;
  const auto count = [](std::optional<int>& target, int most) {
    return [&target, most](S n, S v) { target = static_cast<int>(parse_int(n, v, 1, most)); };
  };
  const auto path = [](std::string& target) {
    return [&target](S n, S v) {
      if (v.empty()) throw UsageError(fmt::format("{} needs a file", n));
      target = v;
    };
  };
  return {
      {{"-n", "--ranks", "--stages"}, "P", "ranks of the pipeline (4)", count(o.stages, 1024)},
      {{"--microbatches"}, "M", "parts of a batch (8)", count(o.microbatches, 100'000)},
      {{"--virtual-stages"}, "V", "stages on each rank, for interleaved (2)", count(o.virtual_stages, 1024)},
      {{"--times"},
       "F,I,W",
       "how long each takes, in any unit (1,1,1)",
       [&](S n, S v) { o.times = parse_times(n, v); }},
      {{"--svg"}, "FILE", "draw it into a file", path(o.svg)},
      {{"--verify"}, "FILE", "a schedule of your own, as CSV; - is stdin", path(o.file)},
      {{"--csv"}, nullptr, "the lists as CSV, and nothing else", [&](S, S) { o.csv = true; }},
      {{"--json"}, nullptr, "print the result as one JSON document", [&](S, S) { o.json = true; }},
      {{"--sends"}, nullptr, "with --csv or --json: the lists with sends and receives", [&](S, S) { o.sends = true; }},
  };
}

Schedule load(const Options& options) {
  Schedule schedule = read_csv(options.file);
  const std::string& name = schedule.name;
  // The number in --microbatches counts, and not that of the file. So a file that lacks the last microbatch is found to
  // be incomplete.
  if (options.microbatches) schedule.microbatches = *options.microbatches;
  if (options.stages && *options.stages != schedule.ranks)
    throw UsageError(
        fmt::format("{} has {} ranks, one line each, but --stages says {}", name, schedule.ranks, *options.stages));
  if (options.virtual_stages && *options.virtual_stages != virtual_stages(schedule))
    throw UsageError(fmt::format("{} has {} stages on a rank, but --virtual-stages says {}", name,
                                 virtual_stages(schedule), *options.virtual_stages));
  return schedule;
}

TextStyle terminal_style() {
  if (::isatty(STDOUT_FILENO) == 0) return {};
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return {!env("NO_COLOR"), known ? size.ws_col : 0};
}

// The document may contain a file's name, which need not be UTF-8.
std::string dump(const nlohmann::json& document) {
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

int schedule(std::span<const std::string> arguments) {
  Options options;
  const auto flags = flags_for(options);
  if (asks_for_help(arguments)) {
    fmt::print("{}{}{}", kHelp, describe_flags(flags), kNotes);
    return kExitOk;
  }
  if (arguments.empty()) {
    fmt::print(stderr, "{}{}{}", kHelp, describe_flags(flags), kNotes);
    return kExitUsage;
  }
  const auto words = read_flags(flags, "schedule", arguments);
  check_can_write("--svg", options.svg);
  if (words.size() > 1) throw UsageError(fmt::format("one schedule at a time, not also '{}'", words[1]));
  if (words.empty() && options.file.empty())
    throw UsageError("which schedule?", "lockstep schedule 1f1b, or --verify FILE");
  if (!words.empty() && !options.file.empty())
    throw UsageError(fmt::format("'{}' is a schedule of its own, and --verify {} another", words[0], options.file),
                     fmt::format("lockstep schedule --verify {}, without a name", options.file));
  if (options.csv && options.json) throw UsageError("--csv and --json both go to stdout", "one of them");
  if (options.sends && !options.csv && !options.json)
    throw UsageError("--sends goes with --csv or --json", "lockstep schedule 1f1b --csv --sends");

  const Schedule chosen = options.file.empty() ? make_schedule(words[0], options.stages.value_or(4),
                                                               options.microbatches.value_or(8), options.virtual_stages)
                                               : load(options);
  if (!chosen.note.empty()) fmt::print(stderr, "lockstep schedule: {}: {}\n", chosen.name, chosen.note);
  const Verdict verdict = examine(chosen, options.times);
  if (options.json) fmt::print("{}\n", dump(scheduling::json_of(chosen, options.times, verdict, options.sends)));
  if (!verdict.problem.empty())
    throw Error(fmt::format("{} can't run: {}", chosen.name, verdict.problem), "", kExitVerification);
  if (options.csv) fmt::print("{}", to_csv(options.sends ? verdict.lowered : chosen));
  if (!options.csv && !options.json)
    fmt::print("{}", scheduling::text_of(chosen, options.times, verdict, terminal_style()));
  if (!options.svg.empty())
    write_and_say(options.svg, svg_of(chosen, verdict.prediction, scheduling::title_of(chosen, options.times)));
  return kExitOk;
}

}  // namespace lockstep::cli
