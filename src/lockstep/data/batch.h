// A batch, and the rows of it that belong to a rank.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "lockstep/base/types.h"

namespace lockstep::data {

// What one rank works on in one step. The whole batch is what all ranks work on in that step.
//
// Ranks may have different numbers of rows, so a mean over ranks is not the mean over samples. Weighted by share() it
// is: the sum over ranks of share() * (mean loss here) is the single process's loss, and likewise for gradients.
// A rank may have no row at all; the mean over none is NaN, so take the sum of the losses over `whole` instead.
struct Batch {
  torch::Tensor inputs, targets;
  std::int64_t whole = 0;    // rows of the whole batch, over all ranks
  std::int64_t padding = 0;  // the last rows here that repeat others to make ranks even: not for an accuracy

  std::int64_t rows() const { return inputs.defined() ? inputs.size(0) : 0; }
  // Rows here over rows of the whole batch.
  double share() const;
};

// Rows begin to end-1.
struct Rows {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
  bool operator==(const Rows&) const = default;
};

// Rank r takes rows [r n/p, (r+1) n/p); when p does not divide n, the first n mod p ranks take one more.
Rows rows_of(Rank rank, int ranks, std::int64_t n);

// This rank's rows of a batch that every rank has whole: views, not copies.
Batch slice(const Batch& whole, Rank rank, int ranks);

}  // namespace lockstep::data
