// Inputs whose results are known to the last bit: small whole numbers, so that sums and products are exact in every
// type, in any order, and wherever a partial result is rounded. Numbers depend on the rank and on the element, so a
// chunk that is lost, duplicated or in the wrong place is noticed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/buffer.h"

namespace lockstep::measure {

class ExactValues {
 public:
  // For a reduction over `ranks` ranks. For ops that only move data any reduce op can be given. bfloat16 holds whole
  // numbers up to 256 exactly, so its sums are exact for up to 256 ranks.
  ExactValues(ReduceOp op, DType dtype, int ranks);

  // Fills `buffer` with what `owner` contributes, from element `first` on.
  void fill(Buffer buffer, Rank owner, std::size_t first = 0) const;

  // How many elements of `buffer` differ from what `owner` contributes, or from the reduction over all ranks. `first`
  // is the number of the buffer's first element.
  std::size_t wrong(ConstBuffer buffer, Rank owner, std::size_t first = 0) const;
  std::size_t wrong_reduced(ConstBuffer buffer, std::size_t first = 0) const;

 private:
  std::uint32_t number(Rank owner, std::size_t index) const;
  std::uint64_t reduced(std::size_t index) const;  // before the division of a mean

  ReduceOp op_;
  int ranks_;
  std::uint32_t choices_;  // numbers go from 0 to choices_ - 1
};

}  // namespace lockstep::measure
