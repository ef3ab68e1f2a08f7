// The loader: prepares the batches of an epoch before they are needed.
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

}  // namespace lockstep::data
