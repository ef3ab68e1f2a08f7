// What an op must move, in closed form: nccl-tests' bus bandwidth, the least bytes through memory and through sockets,
// and what each all-reduce algorithm of docs/contracts.md costs.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/collectives/types.h"

namespace lockstep::cli::benchmark {

// Bus bandwidth over algorithm bandwidth, as in nccl-tests. `op` is none for p2p.
double bus_factor(std::optional<Op> op, int ranks);

// The least bytes that all ranks together read and write when they share memory, for a buffer of `bytes`. p2p: one way.
double memory_bytes(std::optional<Op> op, int ranks, double bytes);

// Every rank sends as much as it receives, as in an exchange.
bool goes_both_ways(std::optional<Op> op);

// The least bytes that all ranks together send.
double wire_bytes(std::optional<Op> op, int ranks, double bytes);

struct AllReduceCost {
  int steps = 0;      // that follow one another
  int messages = 0;   // of the rank that sends most
  double bytes = 0;   // the same
  double summed = 0;  // bytes that arrive to be summed with own ones, at the rank that sums most
};
AllReduceCost all_reduce_cost(Algorithm algorithm, int ranks, double bytes);

}  // namespace lockstep::cli::benchmark
