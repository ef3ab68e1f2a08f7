// The fastest ways to sum some pieces of memory and write the result to others: what an op over shared memory does when
// nobody has to wait for anybody.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::cli::benchmark {

enum class Store {
  lines,         // vectors as wide as a cache line, where the machine has them: best for what fits the first level
  vectors,       // narrower ones: best for what fits the second
  non_temporal,  // past the caches, for what fits none
  string,        // the processor's own copy instruction; for one source only
};

// Sums `bytes` of all sources as float32 and writes them to all targets. A target may be a source; other than that
// nothing overlaps. Pieces begin at multiples of 64, and so many bytes are moved.
void sum_to_all(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t bytes,
                Store store);

}  // namespace lockstep::cli::benchmark
