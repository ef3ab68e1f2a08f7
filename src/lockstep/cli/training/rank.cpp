#include "lockstep/cli/training/rank.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/cpu.h"
#include "lockstep/cli/start.h"
#include "lockstep/cli/training/options.h"
#include "lockstep/cli/training/report.h"
#include "lockstep/communicator.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/identity.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/train/pipeline_config.h"
#include "lockstep/train/pipeline_strategy.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/result.h"
#include "lockstep/training.h"
#include "lockstep/world.h"

namespace lockstep::cli::training {
namespace {

using nlohmann::json;

// Passes the document to the process that shows it: the one that started the ranks, or this one. Returns the exit code.
int deliver(const json& document, const Options& options) {
  if (options.result.empty()) return show(document, options);
  write_result(options.result, document);
  return kExitOk;
}

std::string many(int count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : what.ends_with("ch") ? "es" : "s");
}

std::string describe_pipeline(const train::TrainingConfig& c) {
  const train::PipelineConfig& p = c.pipeline;
  std::string text = fmt::format(
      "{}{}, {}, {}{}",
      c.replicas() == 1 ? "" : fmt::format("{} pipelines of {} samples, ", c.replicas(), c.batch / c.replicas()),
      p.schedule, many(train::schedule_of(c).stages, "stage"), many(p.microbatches, "microbatch"),
      p.recompute ? ", recomputing" : "");
  if (p.emulate)
    text += fmt::format(
        "\nEMULATED COMPUTE: for a microbatch each rank waits F {:g} ms, I {:g} ms, W {:g} ms, which its stages share, "
        "and computes nothing; processes, messages and schedule are real",
        1e3 * p.emulate->forward, 1e3 * p.emulate->input, 1e3 * p.emulate->weight);
  if (const std::string note = train::schedule_of(c).note; !note.empty())
    text += fmt::format("\n{}: {}", p.schedule, note);
  return text;
}

void introduce(train::Progress& progress, const train::Training& training, const Options& options,
               const std::string& transport) {
  const train::TrainingConfig& c = options.config;
  const std::string ranks =
      c.ranks == 1 ? "1 rank"
                   : fmt::format("{} ranks over {}{}", c.ranks, transport,
                                 c.replicas() == c.ranks ? fmt::format(", {} samples each", c.batch / c.ranks) : "");
  progress.say(fmt::format("{} on {}", name_of(c.strategy), ranks));
  progress.say(fmt::format("{}, {} parameters, {} bytes of gradients", c.describe_model(), training.parameters(),
                           training.gradient_bytes()));
  progress.say(fmt::format("{} data, batch {}{}, {} with lr {:g}, seed {}, {} steps", name_of(c.data), c.batch,
                           c.accumulate > 1 ? fmt::format(" in {} microbatches", c.accumulate) : "",
                           name_of(c.optimizer), c.lr, c.seed, training.steps()));
  if (c.strategy == train::StrategyKind::pipeline) progress.say(describe_pipeline(c));
  if (c.ranks > allowed_cores() && !c.pipeline.emulate)
    progress.say(fmt::format("{} ranks share {}: waiting for a core counts as waiting for each other", c.ranks,
                             allowed_cores() == 1 ? "1 core" : fmt::format("{} cores", allowed_cores())));
}

// Ranks would measure different times, but must all divide the model in the same way. So rank 0 measures, and tells the
// others.
std::vector<double> measured_modules(World& world, const train::TrainingConfig& config) {
  json mine = json::array();
  try {
    if (world.rank() == 0) mine = train::measure_modules(config);
  } catch (const std::exception& error) {
    mine = std::string(error.what());  // sent to all ranks
  }
  const json told = json::parse(world.meeting().exchange("train/modules", mine.dump())[0]);
  if (told.is_string()) throw UsageError(told.get<std::string>());
  return told.get<std::vector<double>>();
}

// Runs `body` on all ranks. Returns false if it threw a UsageError on any of them. Such an error comes from the model,
// the files or the machine, and is usually the same on all ranks; so rank 0 reports one of them, once.
bool well_on_all_ranks(World& world, const Options& options, const char* what, const std::function<void()>& body) {
  std::string trouble;
  try {
    body();
  } catch (const UsageError& error) {
    trouble = error.what();
  }
  for (const std::string& text : world.meeting().exchange(fmt::format("train/{}", what), trouble)) {
    if (text.empty()) continue;
    if (world.rank() == 0) deliver({{"error", text}, {"exit_code", kExitUsage}}, options);
    return false;
  }
  return true;
}

int run(World& world, Options options) {
  // With a result file, the process that started the ranks shows the reason and fails.
  const int refused = options.result.empty() ? kExitUsage : kExitOk;
  std::optional<train::Training> training;
  // All ranks check the memory before any of them uses it.
  if (!well_on_all_ranks(world, options, "memory",
                         [&] { train::check_host_memory(options.config, world.ranks_on_this_host()); }))
    return refused;
  if (!well_on_all_ranks(world, options, "model", [&] {
        if (options.config.pipeline.balance == pipeline::Balance::time)
          options.config.pipeline.module_seconds = measured_modules(world, options.config);
        training.emplace(options.config, world.rank(), world.size());
      }))
    return refused;

  Communicator comm(world, train::comm_options(options.config));
  train::Progress progress(world.rank() == 0 ? options.progress_fd : -1,
                           train::Progress::style_for(options.progress_fd), training->steps());
  introduce(progress, *training, options, comm.transport());
  const train::Result result = training->run(comm, progress);
  int verdict = kExitOk;
  if (world.rank() == 0) verdict = deliver(train::document(result), options);
  // All ranks end with the same code, so that a launcher does not have to tell a failed rank from its peers.
  return std::stoi(world.meeting().exchange("train/verdict", std::to_string(verdict))[0]);
}

}  // namespace

int run_rank(std::span<const std::string> arguments) {
  const auto me = rendezvous::identity_from_environment();
  const Options options = parse(arguments, me.source == rendezvous::Identity{}.source ? 0 : me.size);
  train::prepare_process(options.config, me.local_size);
  int verdict = kExitOk;
  const int code =
      rank_main([&](World& world) { verdict = run(world, options); }, train::transport_options(options.config));
  if (code != kExitOk) return code;
  if (me.rank == 0 && options.result.empty() && verdict != kExitUsage) say_files(options.config);
  return verdict;
}

}  // namespace lockstep::cli::training
