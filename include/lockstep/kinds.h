// What a training run chooses from: models and their sizes, data, strategies, optimizers. Plain values that need no
// libtorch, because flags and reports use them, too.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/named_values.h"

namespace lockstep {

// When DistributedDataParallel reduces buckets that become full before backward has ended. on: at once, on a thread
// of its own, so that communication and computation overlap. off: after backward, on the thread that ran it. automatic:
// off if all ranks of the communicator are on one host and at least as many as its cores, because a second thread would
// only take turns with the first; else on.
enum class Overlap : std::uint8_t { automatic, on, off };

inline constexpr auto kOverlaps =
    named_values<Overlap>("overlap", {{Overlap::automatic, "auto"}, {Overlap::on, "on"}, {Overlap::off, "off"}});
inline const char* name_of(Overlap overlap) { return kOverlaps.name_of(overlap); }

namespace model {

enum class ModelKind : std::uint8_t { mlp, cnn, transformer };

inline constexpr auto kModels = named_values<ModelKind>(
    "model", {{ModelKind::mlp, "mlp", "layers of equal width, with ReLU between them"},
              {ModelKind::cnn, "cnn", "3x3 convolutions, each with a max-pool, and two linear layers; for images"},
              {ModelKind::transformer, "transformer",
               "embedding, blocks of causal attention and MLP, output; predicts the next token"}});
inline const char* name_of(ModelKind kind) { return kModels.name_of(kind); }

// The sizes of a Transformer (model.h).
struct TransformerSizes {
  std::int64_t dim = 64;          // length of a token's vector
  std::int64_t depth = 4;         // number of blocks
  std::int64_t heads = 4;         // of the attention in each block; divides dim
  std::int64_t vocabulary = 256;  // number of different tokens
  std::int64_t sequence = 32;     // number of positions
  bool tied = false;              // the output's weight is that of the embedding
};

struct ModelConfig {
  ModelKind kind = ModelKind::mlp;
  // mlp: `depth` times Linear(dim, dim) and ReLU, then Linear(dim, outputs)
  std::int64_t dim = 128, depth = 16, outputs = 2;
  // cnn: one convolution for each entry of `channels`, then Linear to `hidden`, then Linear to `classes`
  std::vector<std::int64_t> channels{32, 64};
  std::int64_t hidden = 512, classes = 10, image_side = 28;
  TransformerSizes transformer = {};

  // The number of modules with parameters. A pipeline can have at most this number of stages.
  std::int64_t layers() const {
    if (kind == ModelKind::transformer) return transformer.depth + 2;
    return kind == ModelKind::mlp ? depth + 1 : static_cast<std::int64_t>(channels.size()) + 2;
  }
};

}  // namespace model

namespace data {

enum class DataKind : std::uint8_t { synthetic, teacher, regression, mnist, fashion_mnist, tokens };

inline constexpr auto kDataKinds = named_values<DataKind>(
    "data",
    {{DataKind::synthetic, "synthetic", "normally distributed inputs, random labels; for a transformer: tokens"},
     {DataKind::teacher, "teacher", "normally distributed inputs, a rule to learn, and one wrong label in ten"},
     {DataKind::regression, "regression", "normally distributed inputs, numbers to predict, and noise"},
     {DataKind::mnist, "mnist", "images of digits"},
     {DataKind::fashion_mnist, "fashion-mnist", "images of clothes"},
     {DataKind::tokens, "tokens", "rows of tokens from a random Markov chain; the best loss is its entropy, 1.137"}});
inline const char* name_of(DataKind kind) { return kDataKinds.name_of(kind); }

// What happens to the samples that remain when those of an epoch are dealt out in equal numbers, if the number of ranks
// does not divide the number of samples.
enum class Remainder : std::uint8_t {
  drop,    // no rank sees them
  pad,     // the first samples are repeated until all ranks have the same number
  uneven,  // the first ranks have one more sample
};

// The flag of `lockstep train` is --tail, so its help and the errors of parse() use that word.
inline constexpr auto kRemainders = named_values<Remainder>(
    "tail", {{Remainder::drop, "drop"}, {Remainder::pad, "pad"}, {Remainder::uneven, "uneven"}});
inline const char* name_of(Remainder remainder) { return kRemainders.name_of(remainder); }

}  // namespace data

namespace train {

enum class StrategyKind : std::uint8_t { single, manual, naive, hooks, ddp, sharded, manual_pipeline, pipeline };

inline constexpr auto kStrategies = named_values<StrategyKind>(
    "strategy",
    {
        {StrategyKind::single, "single", "one process, one loop"},
        {StrategyKind::manual, "manual",
         "two copies of the model in one process, half of the batch each, gradients averaged by hand"},
        {StrategyKind::naive, "naive", "forward, backward, then one all-reduce per parameter"},
        {StrategyKind::hooks, "hooks", "one all-reduce per parameter, as soon as its gradient is ready"},
        {StrategyKind::ddp, "ddp", "gradients in buckets, reduced during or after backward: DistributedDataParallel"},
        {StrategyKind::sharded, "sharded", "the optimizer's work and state split over the ranks as well"},
        {StrategyKind::manual_pipeline, "manual-pipeline",
         "the model in two parts in one process, activations and gradients handed over by hand"},
        {StrategyKind::pipeline, "pipeline",
         "a stage of the model on each rank, microbatches one after the other, in the order of a schedule"},
    });
inline const char* name_of(StrategyKind strategy) { return kStrategies.name_of(strategy); }

// `momentum` is SGD with momentum 0.9. All of them have PyTorch's defaults.
enum class OptimizerKind : std::uint8_t { sgd, momentum, adam, adamw, rmsprop, adagrad };

inline constexpr auto kOptimizers = named_values<OptimizerKind>("optimizer", {{OptimizerKind::sgd, "sgd"},
                                                                              {OptimizerKind::momentum, "momentum"},
                                                                              {OptimizerKind::adam, "adam"},
                                                                              {OptimizerKind::adamw, "adamw"},
                                                                              {OptimizerKind::rmsprop, "rmsprop"},
                                                                              {OptimizerKind::adagrad, "adagrad"}});
inline const char* name_of(OptimizerKind optimizer) { return kOptimizers.name_of(optimizer); }

}  // namespace train
}  // namespace lockstep
