// What reduce.cpp hands to the loops that were compiled for one vector width (reduce_kernels.h).
#pragma once

#include <cstddef>

#include "lockstep/collectives/types.h"

namespace lockstep::collectives {

struct Job {
  std::byte* const* destinations;
  std::size_t destination_count;
  const std::byte* const* sources;
  std::size_t source_count;
  std::size_t count;
  DType dtype;
  ReduceOp op;
  int divisor;
};

void reduce_baseline(const Job& job);
void reduce_avx2(const Job& job);

}  // namespace lockstep::collectives
