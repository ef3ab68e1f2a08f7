#include "lockstep/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/environment.h"
#include "lockstep/buffer.h"
#include "lockstep/error.h"
#include "lockstep/train/pipeline_config.h"

namespace lockstep::train {
namespace {

using data::DataKind;
using model::ModelKind;

constexpr int kMaxRanks = 4096;
constexpr std::int64_t kClasses = 10;  // of both image data sets

bool is_one_process(StrategyKind strategy) {
  return strategy == StrategyKind::single || strategy == StrategyKind::manual ||
         strategy == StrategyKind::manual_pipeline;
}

void check_ranks(TrainingConfig& c) {
  if (c.ranks == 0) c.ranks = is_one_process(c.strategy) ? 1 : 2;
  if (c.ranks < 1 || c.ranks > kMaxRanks)
    throw UsageError(fmt::format("`ranks` is {}", c.ranks), fmt::format("1 to {}", kMaxRanks));
  if (c.ranks > 1 && is_one_process(c.strategy))
    throw UsageError(
        fmt::format("{} is one process, and `ranks` is {}", name_of(c.strategy), c.ranks),
        fmt::format("`ranks` 1, or `strategy` {}", c.strategy == StrategyKind::manual_pipeline ? "pipeline" : "ddp"));
}

void check_batch(TrainingConfig& c) {
  if (c.batch < 0 || c.batch_per_rank < 0)
    throw UsageError(fmt::format("a batch of {} samples", std::min(c.batch, c.batch_per_rank)), "1 or more");
  if (c.batch > 0 && c.batch_per_rank > 0)
    throw UsageError(fmt::format("both `batch` {} and `batch_per_rank` {}", c.batch, c.batch_per_rank), "one of them");
  if (c.batch_per_rank > 0 && __builtin_mul_overflow(c.batch_per_rank, std::int64_t{c.replicas()}, &c.batch))
    throw UsageError(fmt::format("`batch_per_rank` {} on {} ranks", c.batch_per_rank, c.ranks), "a smaller one");
  c.batch_per_rank = 0;
  if (c.batch == 0) c.batch = 32;
  if (c.accumulate < 1) throw UsageError(fmt::format("`accumulate` is {}", c.accumulate), "1 or more");
  // `manual` splits the batch between its two copies.
  const std::int64_t parts = c.strategy == StrategyKind::manual ? 2 : c.replicas();
  const char* who = c.strategy == StrategyKind::manual     ? "copies"
                    : c.strategy == StrategyKind::pipeline ? "pipelines"
                                                           : "ranks";
  if (c.batch < parts)
    throw UsageError(
        fmt::format("a batch of {} is smaller than the {} {}: somebody would have nothing to do", c.batch, parts, who),
        fmt::format("`batch` {}, or `batch_per_rank` 1", parts));
  if (c.batch / parts < c.accumulate)
    throw UsageError(
        fmt::format("a batch of {} on {} {} can't be cut into {} microbatches", c.batch, parts, who, c.accumulate),
        fmt::format("`accumulate` {}", c.batch / parts));
  if (c.accumulate > 1 && (c.strategy == StrategyKind::hooks || c.strategy == StrategyKind::manual))
    throw UsageError(fmt::format("{} can't accumulate: every backward averages over ranks", name_of(c.strategy)),
                     "`strategy` ddp, which leaves it to the last one");
  if (c.accumulate > 1 && c.strategy == StrategyKind::manual_pipeline)
    throw UsageError("manual-pipeline has no microbatches", "`strategy` pipeline with `microbatches` N");
}

void check_length(TrainingConfig& c) {
  if (c.steps < 0) throw UsageError(fmt::format("`steps` is {}", c.steps), "1 or more");
  if (c.epochs < 0) throw UsageError(fmt::format("`epochs` is {}", c.epochs), "1 or more");
  if (c.steps > 0 && c.epochs > 0)
    throw UsageError(fmt::format("both `steps` {} and `epochs` {}", c.steps, c.epochs), "one of them");
  if (c.epochs > 0 && !c.has_epochs())
    throw UsageError(
        fmt::format("`epochs` {}, but {} data is one batch, used at every step", c.epochs, name_of(c.data)),
        fmt::format("`steps` {}{}", 50 * c.epochs, c.data == DataKind::tokens ? "" : ", or `data` fashion-mnist"));
  if (c.has_epochs() && c.steps == 0 && c.epochs == 0) c.epochs = 1;
  if (!c.has_epochs() && c.steps == 0) c.steps = 50;
  if (c.warmup < -1) throw UsageError(fmt::format("`warmup` is {}", c.warmup), "0 or more");
  if (c.steps > 0 && c.warmup >= c.steps)
    throw UsageError(fmt::format("`warmup` {} of `steps` {} leaves none to be timed", c.warmup, c.steps),
                     fmt::format("`warmup` {}", c.steps - 1));
}

// The model must take what the data has: rows of numbers, images, or tokens.
void check_model(TrainingConfig& c) {
  auto& m = c.model;
  if (m.kind == ModelKind::transformer && c.data != DataKind::tokens)
    throw UsageError(fmt::format("a transformer takes tokens, and {} has none", name_of(c.data)), "`data` tokens");
  if (m.kind != ModelKind::transformer && c.data == DataKind::tokens)
    throw UsageError(fmt::format("only a transformer takes tokens, and `model` is {}", name_of(m.kind)),
                     "`model` transformer");
  const std::int64_t pixels = m.image_side * m.image_side;
  if ((c.data == DataKind::regression || c.data == DataKind::teacher) && m.kind == ModelKind::cnn)
    throw UsageError(fmt::format("cnn takes images, and {} has none", name_of(c.data)), "`model` mlp");
  if (c.data == DataKind::regression) m.outputs = 1;
  if (!c.has_epochs()) return;
  if (m.kind == ModelKind::mlp && m.dim != pixels)
    throw UsageError(fmt::format("`dim` is {}, and an image of {} has {} pixels", m.dim, name_of(c.data), pixels),
                     fmt::format("`dim` {}, or `model` cnn", pixels));
  if (m.kind == ModelKind::mlp) m.outputs = kClasses;
}

void check_ddp(const TrainingConfig& c) {
  const bool ddp = c.strategy == StrategyKind::ddp || c.strategy == StrategyKind::sharded;
  const bool buckets = ddp || (c.strategy == StrategyKind::pipeline && c.replicas() > 1);
  if (c.bucket_mb && !buckets)
    throw UsageError(fmt::format("{} has no buckets, and `bucket_mb` is {:g}", name_of(c.strategy), *c.bucket_mb),
                     "`strategy` ddp");
  if (c.bucket_mb && (!(*c.bucket_mb > 0) || *c.bucket_mb > 1e6))
    throw UsageError(fmt::format("`bucket_mb` is {:g}", *c.bucket_mb), "25, or another size in MiB");
  if (c.overlap != Overlap::automatic && !ddp)
    throw UsageError(fmt::format("`overlap` is {}, and {} does not choose", name_of(c.overlap), name_of(c.strategy)),
                     "`strategy` ddp");
  if (c.flat && !ddp)
    throw UsageError(fmt::format("{} has no flat parameters", name_of(c.strategy)), "`strategy` ddp with `flat`");
  if (c.fused_update && c.strategy != StrategyKind::sharded)
    throw UsageError(fmt::format("{} averages gradients in backward, and `fused_update` needs an optimizer that has a "
                                 "share of the parameters",
                                 name_of(c.strategy)),
                     "`strategy` sharded");
  const bool ours =
      c.optimizer == OptimizerKind::adam || c.optimizer == OptimizerKind::adamw || c.optimizer == OptimizerKind::sgd;
  if (c.fused_update && !ours)
    throw UsageError(fmt::format("{} is libtorch's own, which cannot average gradients, as `fused_update` needs",
                                 name_of(c.optimizer)),
                     "`optimizer` adam, adamw or sgd");
  if (c.strategy == StrategyKind::sharded && c.transport == TransportKind::tcp && c.ranks > 1)
    throw UsageError("sharded parameters live in shared memory, and `transport` is tcp", "`transport` shm");
  if (c.strategy == StrategyKind::manual && c.report_memory)
    throw UsageError("manual has two models in one process, and no figure to compare", "`strategy` single");
}

void check_layer_wait(const TrainingConfig& c) {
  if (!(c.layer_wait >= 0) || c.layer_wait > 3600)
    throw UsageError(fmt::format("the backward of a layer waits for {:g} s", c.layer_wait), "0 to 3600");
  const bool one_model = c.strategy == StrategyKind::single || c.strategy == StrategyKind::naive ||
                         c.strategy == StrategyKind::hooks || c.strategy == StrategyKind::ddp ||
                         c.strategy == StrategyKind::sharded;
  if (c.layer_wait > 0 && !one_model)
    throw UsageError(fmt::format("layers do not wait with the strategy {}", name_of(c.strategy)),
                     c.strategy == StrategyKind::pipeline ? "`emulate`" : "`strategy` ddp");
}

double bytes_of_sample(const model::ModelConfig& model) {
  switch (model.kind) {
    case ModelKind::mlp:
      return sizeof(float) * static_cast<double>(model.dim);
    case ModelKind::cnn:
      return sizeof(float) * static_cast<double>(model.image_side * model.image_side);
    case ModelKind::transformer:  // tokens, as inputs and as targets
      return 2 * sizeof(std::int64_t) * static_cast<double>(model.transformer.sequence);
  }
  return 0;
}

// At least the batch must fit into memory, because every rank draws the whole of it.
void check_memory(const TrainingConfig& c) {
  const double bytes = bytes_of_sample(c.model) * static_cast<double>(c.batch);
  const double here = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (!c.has_epochs() && bytes > here / 2)
    throw UsageError(
        fmt::format("a batch of {} takes {:.1f} GB, and this machine has {:.1f}", c.batch, bytes / 1e9, here / 1e9),
        "a smaller `batch`");
}

void check_files(const TrainingConfig& c) {
  check_can_write("`save`", c.save);
  check_can_write("`trace`", c.trace);
  if (!c.save.empty() && c.save == c.trace)
    throw UsageError(fmt::format("`save` and `trace` are both {}", c.save), "two files");
  if (!c.load.empty() && ::access(c.load.c_str(), R_OK) != 0)
    throw UsageError(fmt::format("`load` {}: no such file that can be read", c.load),
                     "a file that was saved by Lockstep or in PyTorch");
}

}  // namespace

std::int64_t TrainingConfig::untimed(std::int64_t steps_made) const {
  constexpr std::int64_t kDefault = 5;
  if (warmup < 0) return std::min(kDefault, steps_made / 2);
  return std::min(warmup, std::max<std::int64_t>(steps_made - 1, 0));
}

bool TrainingConfig::has_epochs() const { return data == DataKind::mnist || data == DataKind::fashion_mnist; }

std::string describe(const model::ModelConfig& model) {
  const auto& t = model.transformer;
  if (model.kind == ModelKind::mlp) return fmt::format("mlp {}x{}", model.depth, model.dim);
  if (model.kind == ModelKind::transformer)
    return fmt::format("transformer {}x{}, {} heads, vocabulary {}, sequence {}{}", t.depth, t.dim, t.heads,
                       t.vocabulary, t.sequence, t.tied ? ", tied" : "");
  return fmt::format("{} {} / {}", name_of(model.kind), fmt::join(model.channels, " "), model.hidden);
}

double default_lr(const TrainingConfig& c) {
  constexpr double kRate = 1e-3, kWidth = 128;
  const bool scales = c.optimizer == OptimizerKind::adam || c.optimizer == OptimizerKind::adamw ||
                      c.optimizer == OptimizerKind::rmsprop;
  if (!scales || c.model.kind != ModelKind::mlp) return kRate;
  return kRate * std::pow(std::min(1.0, kWidth / static_cast<double>(c.model.dim)), 1.5);
}

TrainingConfig checked(TrainingConfig c) {
  if (c.transport == TransportKind::automatic)
    c.transport = parse_transport(env("LOCKSTEP_TRANSPORT").value_or("auto"));
  const bool from_environment = c.algorithm == Algorithm::automatic;
  if (from_environment) c.algorithm = parse_algorithm("LOCKSTEP_ALGORITHM", env("LOCKSTEP_ALGORITHM").value_or("auto"));
  if (c.model.kind == ModelKind::transformer && c.data == DataKind::synthetic) c.data = DataKind::tokens;
  if (c.algorithm == Algorithm::direct && c.transport == TransportKind::tcp)
    throw UsageError("the algorithm direct needs shared memory, and the transport is tcp",
                     from_environment ? "LOCKSTEP_ALGORITHM=auto" : "`algorithm` auto");
  check_stages(c);
  check_ranks(c);
  check_batch(c);
  check_pipeline(c);
  check_length(c);
  check_model(c);
  check_ddp(c);
  check_layer_wait(c);
  check_memory(c);
  check_files(c);
  if (c.lr == TrainingConfig::kUnset) c.lr = default_lr(c);
  if (!std::isfinite(c.lr) || c.lr <= 0) throw UsageError(fmt::format("`lr` is {:g}", c.lr), "0.001");
  return c;
}

}  // namespace lockstep::train
