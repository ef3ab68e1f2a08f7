// The fastest ways to sum pieces of memory and write the result to others. This is what an op over shared memory does
// if no rank has to wait for another.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::measure {

enum class Store {
  lines,         // vectors as wide as a cache line, if the machine has them: best in the first-level cache
  vectors,       // narrower vectors: best in the second-level cache
  non_temporal,  // stores that bypass the caches: best for what fits none of them
  string,        // the processor's own copy instruction; for one source only
};

// Sums `bytes` bytes of all sources as float32 and writes the sums to all targets. A target may be one of the sources;
// apart from that, nothing may overlap. All pieces must begin at multiples of 64 bytes, and `bytes` is rounded down to
// a multiple of 128.
void sum_to_all(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t bytes,
                Store store);

}  // namespace lockstep::measure
