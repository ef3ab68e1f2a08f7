// How long a call takes: all ranks run and time a tight loop, and the slowest rank counts.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/communicator.h"

namespace lockstep::measure {

// The length of a timed loop: `stretches` stretches of `calls` calls each. The clock is read after every stretch. A
// stretch is one call, unless calls are so short that reading the clock (25 ns) would affect the result.
struct Pace {
  std::size_t calls = 1;
  std::size_t stretches = 1;
};

// The measured times of one call; filled on rank 0 only.
struct Times {
  std::vector<double> samples;  // on rank 0: for each stretch, seconds per call on the rank that was slowest in it
  double loops = 0;             // sum over all loops of the seconds on the slowest rank
  std::size_t calls = 0;        // timed calls, over all loops

  double mean() const { return calls == 0 ? 0 : loops / static_cast<double>(calls); }
};

// Collective. Tries longer and longer loops to find out how long a call takes. Returns the pace that fills `seconds`
// or, if `wanted` is not 0, the pace that times `wanted` calls.
Pace find_pace(Communicator& comm, const std::function<void()>& call, double seconds, std::size_t wanted);

// Collective. Makes some calls to warm up, then a barrier, then the loop. Adds the result to `times` on rank 0.
void time_loop(Communicator& comm, const std::function<void()>& call, const Pace& pace, int warmup, Times& times);

// Collective. from_rank_0() returns the value of rank 0 on all ranks. The other two return the sum or the largest of
// all values on rank 0; every other rank gets its own value back. They use plain messages, so that no collective is
// used to measure a collective. The messages that p2p measures have another tag.
std::uint64_t from_rank_0(Communicator& comm, std::uint64_t value);
std::uint64_t sum_on_rank_0(Communicator& comm, std::uint64_t value);
std::uint64_t max_on_rank_0(Communicator& comm, std::uint64_t value);

}  // namespace lockstep::measure
