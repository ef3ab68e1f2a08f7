// What an op must move, in closed form: the bus bandwidth of nccl-tests, the fewest bytes through memory and through
// sockets, and the cost of each all-reduce algorithm in docs/allreduce.md.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/buffer.h"

namespace lockstep::measure {

// Bus bandwidth divided by algorithm bandwidth, as in nccl-tests. `op` is none for p2p.
double bus_factor(std::optional<Op> op, int ranks);

// The fewest bytes that all ranks together read and write if they share memory, for a buffer of `bytes`. For p2p: of a
// message in one direction.
double memory_bytes(std::optional<Op> op, int ranks, double bytes);

// True if every rank sends as much as it receives, as in an exchange.
bool goes_both_ways(std::optional<Op> op);

// The fewest bytes that all ranks together send.
double wire_bytes(std::optional<Op> op, int ranks, double bytes);

struct AllReduceCost {
  int steps = 0;      // steps that follow one another
  int messages = 0;   // messages of the rank that sends most
  double bytes = 0;   // bytes of the rank that sends most
  double summed = 0;  // bytes that the rank that sums most receives and sums with its own
};
AllReduceCost all_reduce_cost(Algorithm algorithm, int ranks, double bytes);

}  // namespace lockstep::measure
