// Which samples a rank sees in an epoch, and in which order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/types.h"
#include "lockstep/data/batch.h"

namespace lockstep::data {

// What happens to the last samples if the number of ranks does not divide the number of samples.
enum class Tail {
  drop,    // no rank sees them
  pad,     // the first samples are repeated until all ranks have the same number
  uneven,  // the first ranks have one more sample
};

// Parses "drop", "pad" or "uneven". Throws UsageError if it is another name; the text suggests the nearest one.
Tail parse_tail(const std::string& name);

struct SamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same on all ranks
  Tail tail = Tail::pad;
};

// Distributes the samples of a data set over the ranks, in the same order as torch.utils.data.DistributedSampler.
//
// An epoch has one order of all samples. It is shuffled by a generator of its own, with seed + epoch, and then cut or
// padded as the tail says. Place i of that order belongs to rank i mod p. So the whole batch of step k, places [k b,
// (k+1) b), consists of the same samples on any number of ranks, except for what the tail changes at the very end.
//
// All ranks must use the same samples, options and epoch. Only one thread at a time may use a sampler.
class DistributedSampler {
 public:
  // Throws UsageError if there is no such rank, if there are no samples, or if there are fewer samples than ranks and
  // the tail is not `pad`.
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
  // the last step, if the tail is uneven or if the number of ranks does not divide the batch. Throw UsageError if the
  // epoch has no such step.
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

}  // namespace lockstep::data
