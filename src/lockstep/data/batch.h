// A batch, and the rows of it that belong to a rank.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "lockstep/base/types.h"

namespace lockstep::data {

// The rows that one rank works on in one step. The whole batch is what all ranks work on in that step.
//
// Ranks may have different numbers of rows, so the mean over ranks is not the mean over samples. Weighted by share() it
// is: the sum over ranks of share() * (mean loss of the rank) is the loss of a single process, and likewise for
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

}  // namespace lockstep::data
