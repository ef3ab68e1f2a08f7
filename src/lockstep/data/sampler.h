// Which samples a rank sees in an epoch, and in which order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/types.h"
#include "lockstep/data/batch.h"

namespace lockstep::data {

// What becomes of the last samples when the ranks don't divide the data set.
enum class Tail {
  drop,    // nobody sees them
  pad,     // the first samples are seen once more, until all ranks have equally many
  uneven,  // the first ranks have one sample more
};

// "drop", "pad" or "uneven"; a UsageError names the nearest.
Tail parse_tail(const std::string& name);

struct SamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same on all ranks
  Tail tail = Tail::pad;
};

// Deals a data set's samples to the ranks, as torch.utils.data.DistributedSampler does, in the same order.
//
// An epoch has one order of all samples: shuffled by seed + epoch with a generator of its own, cut or padded by the
// tail. Place i of that order is rank i mod p's. So the whole batch of step k, places [k b, (k+1) b), is the same
// samples on any number of ranks, apart from what the tail changes at the very end.
//
// Give all ranks the same samples, options and epoch. One thread at a time.
class DistributedSampler {
 public:
  DistributedSampler(std::int64_t samples, Rank rank, int ranks, const SamplerOptions& options = {});

  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }

  // This rank's samples in this epoch, in order.
  std::vector<std::int64_t> indices() const;

  Rank rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // Samples here in an epoch.
  std::int64_t size() const { return places_before(total()); }
  // Samples of all ranks in an epoch, repeated ones too.
  std::int64_t total() const;
  // How many of this rank's samples, the last ones, repeat others: none or one.
  std::int64_t padding() const;

  // Steps of an epoch, the same on all ranks, for a whole batch of so many samples. The last may be smaller.
  std::int64_t steps(std::int64_t whole_batch) const;
  // Which of indices() this rank takes in a step, and how many samples all ranks take. A rank may have none in the last
  // step, when the tail is uneven or the ranks don't divide the batch.
  Rows rows_at(std::int64_t step, std::int64_t whole_batch) const;
  std::int64_t whole_at(std::int64_t step, std::int64_t whole_batch) const;

 private:
  // How many of the places 0 to end-1 are this rank's.
  std::int64_t places_before(std::int64_t end) const { return (end + ranks_ - 1 - rank_) / ranks_; }

  std::int64_t samples_;
  Rank rank_;
  int ranks_;
  SamplerOptions options_;
  std::int64_t epoch_ = 0;
};

}  // namespace lockstep::data
