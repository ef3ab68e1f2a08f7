// The batches of an epoch, ready when they are wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/prefetch.h"
#include "lockstep/data/sampler.h"

namespace lockstep::data {

// Makes the rows of these samples: inputs and targets, in that order. The loader fills in the rest.
using Fetch = std::function<Batch(std::span<const std::int64_t> indices)>;

// Copies rows of a data set. It shares the tensors; don't write to them.
Fetch fetch_from(const Dataset& dataset);

struct LoaderOptions {
  std::int64_t batch = 64;  // the whole batch, over all ranks
  bool prefetch = true;     // the next batch is made on a thread while this one is worked on
};

// Batches of one rank, epoch by epoch:
//
//   Loader loader(fetch_from(dataset), DistributedSampler(dataset.size(), rank, ranks), {.batch = 64});
//   for (int epoch = 0; epoch < 2; ++epoch) {
//     loader.start_epoch(epoch);
//     while (auto batch = loader.next()) ...
//   }
//
// All ranks get the same number of batches, steps(), and step k's batches of all ranks together are those samples that
// a single process would take at step k. Batch::whole is their number, and Batch::padding how many of the rows here
// repeat others.
//
// With prefetch, `fetch` runs on another thread, one batch ahead and never more. What it throws comes out of next(),
// in the place of its batch. A loader can be destroyed at any time, in the middle of an epoch too. One thread uses it.
class Loader {
 public:
  // A batch smaller than the ranks is a UsageError.
  Loader(Fetch fetch, const DistributedSampler& sampler, const LoaderOptions& options = {});
  Loader(const Loader&) = delete;  // its thread knows where it is
  Loader& operator=(const Loader&) = delete;

  // Leaves the epoch before it, finished or not.
  void start_epoch(std::int64_t epoch);
  // Nothing: the epoch is over. Without start_epoch it is epoch 0.
  std::optional<Batch> next();
  // Batches of an epoch.
  std::int64_t steps() const { return steps_; }

 private:
  std::optional<Batch> make();

  Fetch fetch_;
  DistributedSampler sampler_;
  LoaderOptions options_;
  std::int64_t steps_;
  // The epoch, which belongs to the thread while there is one.
  std::vector<std::int64_t> indices_;
  std::int64_t step_ = 0;
  bool started_ = false;
  std::unique_ptr<Prefetch<Batch>> ahead_;  // last: its thread uses the rest
};

}  // namespace lockstep::data
