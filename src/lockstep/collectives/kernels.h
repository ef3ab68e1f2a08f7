// The interface between reduce.cpp and the loops of reduce_kernels.h, which are compiled once for each vector width.
#pragma once

#include <cstddef>

#include "lockstep/buffer.h"

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
