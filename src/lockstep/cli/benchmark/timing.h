// How long a call takes: a tight loop on all ranks, timed on all ranks, the slowest counts.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::cli::benchmark {

// A loop: `batches` stretches of `calls` calls each, a clock reading after every stretch. One call a stretch, unless
// calls are so short that reading the clock (25 ns) would show.
struct Pace {
  std::size_t calls = 1;
  std::size_t batches = 1;
};

struct Times {
  std::vector<double> samples;  // seconds a call, a stretch each, on the rank that was slowest in it; on rank 0
  double loops = 0;             // seconds of whole loops, on the rank that was slowest in each
  std::size_t calls = 0;

  double mean() const { return calls == 0 ? 0 : loops / static_cast<double>(calls); }
  // The sample that a share of them (0 to 1) does not exceed. Sorts.
  double quantile(double share);
};

// Collective. Tries longer and longer loops, then says how many calls fill `seconds`; or how to time just `wanted`.
Pace find_pace(Communicator& comm, const std::function<void()>& call, double seconds, std::size_t wanted);

// Collective. Some calls to warm up, a barrier, then the loop. Adds to `times`, on rank 0.
void time_loop(Communicator& comm, const std::function<void()>& call, const Pace& pace, int warmup, Times& times);

// Collective, by plain messages: what is measured takes no part in it.
std::uint64_t from_rank_0(Communicator& comm, std::uint64_t value);
std::uint64_t sum_on_rank_0(Communicator& comm, std::uint64_t value);
std::uint64_t max_on_rank_0(Communicator& comm, std::uint64_t value);

}  // namespace lockstep::cli::benchmark
