#include "lockstep/cli/training/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/cli/choices.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/scheduling/times.h"
#include "lockstep/error.h"

namespace lockstep::cli::training {
namespace {

constexpr const char* kExamples = R"(Examples:
  lockstep train                                         the 16-layer MLP with ddp on 2 ranks
  lockstep train --strategy single                       the same in one process: the losses are the same, too
  lockstep train --strategy naive --ranks 4              one all-reduce per parameter, after backward
  lockstep train --ranks 4 --dim 1024 --batch 64 --trace train.json
                                                         see communication run beside backward: open the file in Perfetto
  lockstep train --strategy sharded --dim 1024           the optimizer's work and state split over the ranks
  lockstep train --strategy pipeline --ranks 4 --schedule 1f1b --microbatches 8
                                                         a quarter of the layers on each rank
  lockstep train --strategy pipeline --ranks 4 --stages 2
                                                         two pipelines of two stages, half of the batch each
  lockstep train --strategy pipeline --ranks 8 --schedule zb-h1 --emulate-compute 10ms,10ms,10ms
                                                         as on 8 devices: stages wait instead of computing
  lockstep train --model cnn --data fashion-mnist --epochs 2 --batch 64 --save cnn.safetensors
  lockstep train --model transformer --strategy pipeline --ranks 3 --vocabulary 8192 --balance parameters
                                                         a large embedding: the stages can't be equal
  mpirun -n 4 lockstep train --json                      as ranks that another launcher starts

Trains a model on synthetic data or on images, and says where the time went.

Usage: lockstep train [flags]

)";

constexpr const char* kNotes = R"(
With the same seed, the losses are those of PyTorch up to rounding, whatever the strategy and the number of ranks. At
the end the weights of all ranks are compared.

The report:
  a step                 from zero_grad to the end of the optimizer; the parts are means over the half of the timed
                         steps whose times are nearest to the median (in a pipeline: over the last 50 steps), and over
                         the ranks; they add up to 100%. p50 and p99 are quantiles over all timed steps, on the
                         slowest rank.
  exposed communication  the wait after a rank's own backward, for messages and for slower ranks; in a pipeline, the
                         wait for messages that were on their way, and for the other pipelines' gradients
  bubble                 only in a pipeline: the wait for another stage that had not yet computed what this rank needs
  other                  the rest of a step: clearing gradients, the bookkeeping of hooks and buckets
  overlap                with hooks, ddp and sharded: whether gradients travel while backward goes on
  overhead               the share of exposed communication in a step
  utilisation            each rank's shares of its step: compute is forward, backward and optimizer; communication is
                         exposed communication
  memory                 with --report-memory. Share: measured between backward and optimizer, the largest of all
                         steps; memory that n ranks have mapped counts 1/n for each of them (Pss), so the shares of
                         all ranks can be added up. Peak: the largest memory of the rank at any time, with shared
                         memory counted in full.
  speed                  samples of a batch, of all ranks together, divided by the median step

Exit code 3 when ranks end with different weights, 2 for wrong usage.
)";

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

void refuse_empty(const std::string& flag, const std::string& value) {
  if (value.empty()) throw UsageError(fmt::format("{} is empty", flag), "a value, or without the flag");
}

std::vector<Flag> flags(Options& o) {
  using S = const std::string&;
  train::TrainingConfig& c = o.config;
  model::ModelConfig& m = c.model;
  train::PipelineConfig& p = c.pipeline;
  const auto text = [](std::string& place) {
    return [&place](S n, S v) {
      refuse_empty(n, v);
      place = v;
    };
  };
  const auto choice = [](auto& place, const auto& values) {
    return [&place, &values](S n, S v) {
      refuse_empty(n, v);
      place = values.parse(v);
    };
  };
  const auto count = [](std::int64_t& place, std::int64_t least = 1) {
    return [&place, least](S n, S v) { place = parse_int(n, v, least, kMost); };
  };
  const auto number = [](int& place) {
    return [&place](S n, S v) { place = static_cast<int>(parse_int(n, v, 1, 1 << 20)); };
  };
  const auto on = [](bool& place) { return [&place](S, S) { place = true; }; };
  return {
      {{"--strategy"},
       "NAME",
       fmt::format("{}; default ddp", fmt::join(train::kStrategies.names(), ", ")),
       choice(c.strategy, train::kStrategies)},
      {{"-n", "--ranks"},
       "N",
       "ranks to start; default 2, and 1 for single, manual and manual-pipeline",
       [&](S n, S v) { c.ranks = static_cast<int>(parse_int(n, v, 1, 4096)); }},
      {{"--model"}, "NAME", choices(model::kModels, m.kind), choice(m.kind, model::kModels)},
      {{"--dim"},
       "N",
       "mlp, transformer: width of a layer; default 128, and 64 for a transformer",
       [&](S n, S v) { m.dim = m.transformer.dim = parse_int(n, v, 1, kMost); }},
      {{"--depth"},
       "N",
       "mlp: layers before the last; default 16; transformer: blocks; default 4",
       [&](S n, S v) { m.depth = m.transformer.depth = parse_int(n, v, 1, kMost); }},
      {{"--heads"}, "N", "transformer: heads of each attention; default 4", count(m.transformer.heads)},
      {{"--vocabulary"}, "N", "transformer: number of different tokens; default 256", count(m.transformer.vocabulary)},
      {{"--sequence"}, "N", "transformer: tokens in a row; default 32", count(m.transformer.sequence)},
      {{"--tied"}, nullptr, "transformer: the embedding and the output share one weight", on(m.transformer.tied)},
      {{"--channels"},
       "LIST",
       "cnn: channels of each convolution; default 32,64",
       [&](S n, S v) {
         m.channels.clear();
         for (S item : split_list(n, v)) m.channels.push_back(parse_int(n, item, 1, kMost));
       }},
      {{"--hidden"}, "N", "cnn: width of the layer before the last; default 512", count(m.hidden)},
      {{"--data"}, "NAME", choices(data::kDataKinds, c.data), choice(c.data, data::kDataKinds)},
      {{"--data-dir"}, "FOLDER", "where the files of mnist or fashion-mnist are", text(c.data_dir)},
      {{"--tail"},
       "HOW",
       fmt::format("what happens to samples that the ranks do not divide evenly: {}",
                   choices(data::kRemainders, c.remainder)),
       choice(c.remainder, data::kRemainders)},
      {{"--batch"}, "N", "samples per step, over all ranks; default 32", count(c.batch)},
      {{"--batch-per-rank"}, "N", "samples per rank and step (instead of --batch)", count(c.batch_per_rank)},
      {{"--steps"}, "N", "default 50", count(c.steps)},
      {{"--epochs"}, "N", "passes over all of mnist or fashion-mnist (instead of --steps); default 1", count(c.epochs)},
      {{"--warmup"}, "N", "first steps, not timed; default 5, but at most half of the steps", count(c.warmup, 0)},
      {{"--accumulate"}, "N", "microbatches per step, whose gradients are added up; default 1", count(c.accumulate)},
      {{"--optimizer"},
       "NAME",
       fmt::format("{}; default adam", fmt::join(train::kOptimizers.names(), ", ")),
       choice(c.optimizer, train::kOptimizers)},
      {{"--lr"},
       "X",
       "learning rate; default 0.001; with Adam or RMSprop, 0.001 (128 / dim)^1.5 for an mlp wider than 128",
       [&](S n, S v) { c.lr = parse_number(n, v, 0); }},
      {{"--seed"},
       "N",
       "seed of weights, data and shuffling; default 42",
       [&](S n, S v) {
         c.seed = static_cast<std::uint64_t>(parse_int(n, v, 0, std::numeric_limits<std::int64_t>::max()));
       }},
      {{"--bucket-mb"},
       "X",
       "ddp, sharded, several pipelines: MiB at which a bucket is closed; default 25",
       [&](S n, S v) { c.bucket_mb = parse_number(n, v, 0); }},
      {{"--overlap"},
       "WHEN",
       fmt::format("ddp, sharded: buckets are reduced while backward goes on, by a thread of their own: {}",
                   choices(kOverlaps, c.overlap)),
       choice(c.overlap, kOverlaps)},
      {{"--flat"},
       nullptr,
       "ddp, sharded: parameters lie back to back, and the optimizer gets them in blocks of 256 KiB",
       on(c.flat)},
      {{"--fused-update"},
       nullptr,
       "sharded: the optimizer averages the gradients, in the pass over memory in which it updates the parameters",
       on(c.fused_update)},
      {{"--schedule"},
       "NAME",
       "pipeline: naive, gpipe, 1f1b (default), interleaved, zb-h1, zb-h2, zbv, v-half, v-min, dualpipev, or FILE.csv",
       text(p.schedule)},
      {{"--stages"}, "N", "pipeline: number of ranks in one pipeline; default all ranks", number(p.stages)},
      {{"--microbatches"},
       "N",
       "pipeline: number of parts of a batch; default 8, or fewer if the batch is smaller",
       number(p.microbatches)},
      {{"--virtual-stages"},
       "N",
       "interleaved: stages on each rank; default 2",
       [&](S n, S v) { p.virtual_stages = static_cast<int>(parse_int(n, v, 1, 4096)); }},
      {{"--balance"},
       "BY",
       "pipeline: what is made equal among the stages: count (of layers, default), parameters or time",
       choice(p.balance, pipeline::kBalances)},
      {{"--recompute"}, nullptr, "pipeline: keep inputs only, forward again before backward", on(p.recompute)},
      {{"--emulate-compute"},
       "F,I,W",
       "pipeline: times that a rank waits per microbatch instead of computing, such as 10ms,10ms,10ms",
       [&](S n, S v) { p.emulate = scheduling::parse_durations(n, v); }},
      {{"--layer-wait"},
       "TIME",
       "not in pipelines: time such as 1ms that each layer's backward waits, as if for a device",
       [&](S n, S v) { c.layer_wait = parse_seconds(n, v); }},
      {{"--transport"}, "NAME", choices(kTransports, c.transport), [&](S, S v) { c.transport = parse_transport(v); }},
      {{"--algorithm"},
       "NAME",
       "of all collectives that have it: auto (default), direct, ring ...",
       [&](S n, S v) { c.algorithm = parse_algorithm(n, v); }},
      {{"--flush-denormals"},
       nullptr,
       "treat tiny numbers as zero, which is faster and changes bits",
       on(c.flush_denormals)},
      {{"--load"}, "FILE", "start from these weights (safetensors)", text(c.load)},
      {{"--save"}, "FILE", "write the weights at the end (safetensors)", text(c.save)},
      {{"--trace"}, "FILE", "record what every rank did when; open the file in Perfetto", text(c.trace)},
      {{"--report-memory"},
       nullptr,
       "measure each rank's memory from the third step on, and print the peak; slow",
       on(c.report_memory)},
      {{"--out"}, "FILE", "write the result there too, as JSON", text(o.out)},
      {{"--json"}, nullptr, "print the result as one JSON document", on(o.json)},
      {{"--result"}, "FILE", "", text(o.result)},
      {{"--progress-fd"}, "N", "", [&](S n, S v) { o.progress_fd = static_cast<int>(parse_int(n, v, -1, 1 << 20)); }},
  };
}

// Values and what they mean, as lines of the help text.
template <typename Values>
std::string describe_values(const char* title, const Values& values) {
  std::size_t longest = 0;
  for (const std::string& name : values.names()) longest = std::max(longest, name.size());
  std::string text = fmt::format("\n{}:\n", title);
  for (const auto& [value, name, help] : values) text += fmt::format("  {:<{}}  {}\n", name, longest, help);
  return text;
}

}  // namespace

void check_model_flags(model::ModelKind model, const std::set<std::string>& given) {
  using model::ModelKind;
  static const std::map<ModelKind, std::set<std::string>> kFlags{
      {ModelKind::mlp, {"--dim", "--depth"}},
      {ModelKind::cnn, {"--channels", "--hidden"}},
      {ModelKind::transformer, {"--dim", "--depth", "--heads", "--vocabulary", "--sequence", "--tied"}}};
  for (const auto& [other, flags] : kFlags)
    for (const std::string& flag : flags)
      if (given.contains(flag) && !kFlags.at(model).contains(flag))
        throw UsageError(fmt::format("{} is a flag of {}, and --model is {}", flag, name_of(other), name_of(model)),
                         fmt::format("without {}, or --model {}", flag, name_of(other)));
}

Options parse(std::span<const std::string> arguments, int world) {
  Options options;
  std::vector<std::string> words(arguments.begin(), arguments.end());
  // Accepts "--channels 32 64", as PyTorch's own scripts do.
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "--channels") continue;
    while (i + 2 < words.size() && !words[i + 2].starts_with('-')) {
      words[i + 1] += "," + words[i + 2];
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    }
  }
  const auto known = flags(options);
  const auto rest = read_flags(known, "train", words);
  if (!rest.empty()) throw UsageError(fmt::format("'{}' is one word too many", rest[0]), "lockstep train --help");
  check_model_flags(options.config.model.kind, given_flags(known, "train", words));
  if (!options.out.empty() && (options.out == options.config.save || options.out == options.config.trace))
    throw UsageError(fmt::format("--out and another flag are both {}", options.out), "a file for each");
  train::TrainingConfig& config = options.config;
  if (world > 0 && config.ranks > 0 && config.ranks != world)
    throw UsageError(fmt::format("--ranks {}, but this is a rank of a world of {}", config.ranks, world),
                     "no --ranks, or without the launcher");
  if (world > 0) config.ranks = world;
  config = train::checked(config);
  check_can_write("--out", options.out);
  return options;
}

std::string help() {
  Options options;
  return kExamples + describe_flags(flags(options)) + describe_values("Models", model::kModels) +
         describe_values("Data", data::kDataKinds) +
         describe_values("Strategies, each a rung of a ladder", train::kStrategies) + kNotes;
}

}  // namespace lockstep::cli::training
