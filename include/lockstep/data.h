// Data for training: data sets and synthetic data, which samples a rank sees, and a loader that prepares batches.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/kinds.h"
#include "lockstep/types.h"

namespace lockstep::data {

template <typename T>
class Prefetch;

// --- a batch, and the rows of it that belong to a rank ---

// The rows that one rank works on in one step. The whole batch is what all ranks work on in that step.
//
// Ranks may have different numbers of rows, so the plain mean over ranks is not the mean over samples. Use share() as
// the weight: the sum over ranks of share() * (mean loss of the rank) is the loss of a single process, and likewise for
// gradients. A rank may have no rows at all. The mean over no rows is NaN, so use the sum of the losses divided by
// `whole` instead.
struct Batch {
  torch::Tensor inputs, targets;
  std::int64_t whole = 0;    // rows of the whole batch, over all ranks
  std::int64_t padding = 0;  // last rows that only repeat others, so that ranks are even; leave them out of an accuracy

  std::int64_t rows() const { return inputs.defined() ? inputs.size(0) : 0; }
  // The rows of this rank divided by the rows of the whole batch. Throws UsageError if `whole` is below 1.
  double share() const;
};

// Rows begin to end-1.
struct Rows {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
  bool operator==(const Rows&) const = default;
};

// The rows of `rank` if n rows are divided among `ranks` ranks: [r n/p, (r+1) n/p) for rank r of p. If p does not
// divide n, the first n mod p ranks take one more. Throws UsageError if there is no such rank or if n is negative.
Rows rows_of(Rank rank, int ranks, std::int64_t n);

// The rows of `rank` in a batch that every rank has as a whole. They are views, not copies.
Batch slice(const Batch& whole, Rank rank, int ranks);

// --- which samples a rank sees in an epoch, and in which order ---

struct SamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same on all ranks
  Remainder remainder = Remainder::pad;
};

// Distributes the samples of a data set over the ranks, in the same order as torch.utils.data.DistributedSampler.
//
// An epoch has one order of all samples. It is shuffled by a generator of its own, with seed + epoch, and then cut or
// padded as the remainder says. Place i of that order belongs to rank i mod p. So the whole batch of step k, places [k
// b, (k+1) b), consists of the same samples on any number of ranks, except for what the remainder changes at the very
// end.
//
// All ranks must use the same samples, options and epoch. Only one thread at a time may use a sampler.
class DistributedSampler {
 public:
  // Throws UsageError if there is no such rank, if there are no samples, or if there are fewer samples than ranks and
  // the remainder is not `pad`.
  DistributedSampler(std::int64_t samples, Rank rank, int ranks, const SamplerOptions& options = {});

  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }

  // This rank's samples in this epoch, in their order.
  std::vector<std::int64_t> indices() const;

  Rank rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // The number of this rank's samples in an epoch.
  std::int64_t size() const { return places_before(total()); }
  // The number of samples of all ranks in an epoch, including repeated ones.
  std::int64_t total() const;
  // How many of this rank's last samples repeat others: 0 or 1.
  std::int64_t padding() const;

  // The number of steps of an epoch, which is the same on all ranks, for whole batches of `whole_batch` samples. The
  // last batch may be smaller. Throws UsageError if `whole_batch` is less than the number of ranks.
  std::int64_t steps(std::int64_t whole_batch) const;
  // Which of indices() this rank takes in a step, and how many samples all ranks take in it. A rank may have none in
  // the last step, if the remainder is uneven or if the number of ranks does not divide the batch. Throw UsageError if
  // the epoch has no such step.
  Rows rows_at(std::int64_t step, std::int64_t whole_batch) const;
  std::int64_t whole_at(std::int64_t step, std::int64_t whole_batch) const;

 private:
  // How many of the places 0 to end-1 belong to this rank.
  std::int64_t places_before(std::int64_t end) const { return (end + ranks_ - 1 - rank_) / ranks_; }

  std::int64_t samples_;
  Rank rank_;
  int ranks_;
  SamplerOptions options_;
  std::int64_t epoch_ = 0;
};

// --- MNIST and Fashion-MNIST, from their IDX files.
//
// The files have the names of the originals, with or without .gz. They are looked for in this order:
//   1. the folder that is given: FOLDER/NAME (NAME is mnist or fashion-mnist), then FOLDER itself, and nowhere else;
//   2. $LOCKSTEP_DATA/NAME;
//   3. data/NAME under the working folder, where `./dev data mnist` puts MNIST;
//   4. for fashion-mnist, /usr/share/datasets/fashion-mnist, where Debian's package dataset-fashion-mnist puts it.

enum class Split { train, test };

struct Dataset {
  torch::Tensor images;  // float [n, 1, 28, 28], normalised: the training images have mean 0 and standard deviation 1
  torch::Tensor labels;  // int64 [n], 0 to 9
  std::int64_t size() const { return labels.size(0); }
};

// `kind` is mnist or fashion_mnist. Throws UsageError, which says what to do, if it is another kind, or if a file is
// missing, is damaged, or does not match the other one (images and labels).
Dataset load(DataKind kind, Split split, const std::filesystem::path& folder = {});

// --- the loader: prepares the batches of an epoch before they are needed ---

// Makes the rows of these samples: their inputs and targets, in the order of `indices`. The loader fills in the rest of
// the batch.
using Fetch = std::function<Batch(std::span<const std::int64_t> indices)>;

// Copies rows of a data set. It shares the data set's tensors, which must not be written to.
Fetch fetch_from(const Dataset& dataset);

struct LoaderOptions {
  std::int64_t batch = 64;  // the whole batch, over all ranks
  bool prefetch = true;     // make the next batch on a thread while this one is in use
};

// The batches of one rank, epoch by epoch:
//
//   Loader loader(fetch_from(dataset), DistributedSampler(dataset.size(), rank, ranks), {.batch = 64});
//   for (int epoch = 0; epoch < 2; ++epoch) {
//     loader.start_epoch(epoch);
//     while (auto batch = loader.next()) ...
//   }
//
// All ranks get the same number of batches, steps(). The batches of all ranks at step k together have the samples that
// a single process would take at step k. Batch::whole is their number, and Batch::padding is the number of rows on this
// rank that only repeat others.
//
// With prefetch, `fetch` runs on another thread, at most one batch ahead. What it throws comes out of next() in place
// of its batch. A loader may be destroyed at any time, also in the middle of an epoch. Only one thread may use it.
class Loader {
 public:
  // Throws UsageError if the batch has fewer samples than there are ranks.
  Loader(Fetch fetch, const DistributedSampler& sampler, const LoaderOptions& options = {});
  ~Loader();
  Loader(const Loader&) = delete;  // its thread holds a pointer to it
  Loader& operator=(const Loader&) = delete;

  // Begins an epoch. The epoch before it ends, even if it is not finished.
  void start_epoch(std::int64_t epoch);
  // The next batch, or none if the epoch is over. Without start_epoch() the epoch is 0.
  std::optional<Batch> next();
  // The number of batches of an epoch.
  std::int64_t steps() const { return steps_; }

 private:
  std::optional<Batch> make();

  Fetch fetch_;
  DistributedSampler sampler_;
  LoaderOptions options_;
  std::int64_t steps_;
  // The state of the epoch. Only the prefetch thread uses it while that exists.
  std::vector<std::int64_t> indices_;
  std::int64_t step_ = 0;
  bool started_ = false;
  std::unique_ptr<Prefetch<Batch>> ahead_;  // the last member, because its thread uses the others
};

// --- Synthetic data: one whole batch, the same on every rank that has the same seed.
//
// Everything is drawn from torch's default generator in its current state, inputs first and then targets, so that
//
//   torch::manual_seed(42); auto model = make_model(config); auto batch = classification(32, 128);
//
// gives the weights, inputs and targets that the same lines give in Python, bit for bit. The functions throw UsageError
// if a size is below 1.

// Normally distributed inputs [rows, dim]; random targets in [0, classes), so there is nothing to learn but the batch
// itself.
Batch classification(std::int64_t rows, std::int64_t dim, std::int64_t classes = 2);

// Normally distributed inputs [rows, dim]. The class, 0 or 1, is the sign of the input's dot product with a vector w*,
// which is drawn after the inputs. Then a random fraction `wrong` of the labels is flipped. So there is a rule to
// learn, and the best loss that the rule alone can give is -wrong log(wrong) - (1 - wrong) log(1 - wrong): 0.325 if one
// label in ten is wrong.
Batch teacher(std::int64_t rows, std::int64_t dim, double wrong);

// y = X w* + noise * e with normally distributed X, w* and e: inputs [rows, dim], targets [rows, 1]. w* is drawn after
// the inputs.
Batch regression(std::int64_t rows, std::int64_t dim, double noise);

// Rows of tokens from a random Markov chain: inputs [rows, sequence], and as targets [rows, sequence] the token after
// each of them. First the chain is drawn, then the first token of each row, uniformly, and then the steps of all rows.
// There is a rule to learn, and the best loss that the rule alone can give is the entropy of the chain: 1.137 (nats per
// token) if there are at least 4 tokens. A model can do better only because it sees the same batch again and again.
Batch tokens(std::int64_t rows, std::int64_t sequence, std::int64_t vocabulary);

// Normally distributed images [rows, 1, side, side]; random targets in [0, classes).
Batch images(std::int64_t rows, std::int64_t side = 28, std::int64_t classes = 10);

}  // namespace lockstep::data
