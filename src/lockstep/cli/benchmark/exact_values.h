// Inputs whose results are known to the last bit: small whole numbers, so that sums and products are exact in every
// type, whatever the order and wherever a partial result is rounded. Each rank and each element has its own number, so
// a chunk that is lost, doubled or in the wrong place shows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/collectives/types.h"

namespace lockstep::cli::benchmark {

class ExactValues {
 public:
  // For a reduction over `ranks`; for ops that only move data any reduce op will do. bfloat16 holds whole numbers to
  // 256 exactly, so its sums are exact for up to 256 ranks.
  ExactValues(ReduceOp op, DType dtype, int ranks);

  // Fills `buffer` with elements [first, ...) of what `owner` contributes.
  void fill(Buffer buffer, Rank owner, std::size_t first = 0) const;

  // How many elements are not what `owner` contributes, or not the reduction over all ranks. `first` as above.
  std::size_t wrong(ConstBuffer buffer, Rank owner, std::size_t first = 0) const;
  std::size_t wrong_reduced(ConstBuffer buffer, std::size_t first = 0) const;

 private:
  std::uint32_t number(Rank owner, std::size_t index) const;
  std::uint64_t reduced(std::size_t index) const;  // before a mean is divided

  ReduceOp op_;
  int ranks_;
  std::uint32_t choices_;  // numbers go from 0 to choices_ - 1
};

}  // namespace lockstep::cli::benchmark
