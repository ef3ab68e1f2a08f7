#include "lockstep/measure/formulas.h"

#include <bit>

namespace lockstep::measure {
namespace {

// The pairs of ranks that exchange messages in p2p. If the number of ranks is odd, the last one has no partner.
int pairs(int ranks) { return ranks / 2; }

}  // namespace

double bus_factor(std::optional<Op> op, int ranks) {
  const double p = ranks;
  if (!op) return 1;
  switch (*op) {
    case Op::all_reduce:
      return 2 * (p - 1) / p;
    case Op::scatter:
    case Op::gather:
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::all_to_all:
      return (p - 1) / p;
    case Op::reduce:
    case Op::broadcast:
      return 1;
    case Op::barrier:
      return 0;
  }
  return 0;
}

double memory_bytes(std::optional<Op> op, int ranks, double bytes) {
  const double p = ranks;
  if (!op) return 2 * bytes * pairs(ranks);  // read on the sender, written on the receiver
  switch (*op) {
    case Op::all_reduce:
      return 2 * p * bytes;
    case Op::reduce:
    case Op::reduce_scatter:
      return (p + 1) * bytes;  // all buffers are read, one buffer's worth is written
    case Op::broadcast:
      return p * bytes;  // one is read, the others are written
    case Op::scatter:
    case Op::gather:
      return 2 * bytes * (p - 1) / p;  // the root's own chunk stays
    case Op::all_gather:
      return bytes + (p - 1) * bytes;  // each chunk is read once and written for every other rank
    case Op::all_to_all:
      return 2 * (p - 1) * bytes;
    case Op::barrier:
      return 0;
  }
  return 0;
}

bool goes_both_ways(std::optional<Op> op) {
  return op == Op::all_reduce || op == Op::all_gather || op == Op::reduce_scatter || op == Op::all_to_all;
}

double wire_bytes(std::optional<Op> op, int ranks, double bytes) {
  const double p = ranks;
  if (!op) return bytes * pairs(ranks);
  switch (*op) {
    case Op::all_reduce:
      return 2 * (p - 1) * bytes;
    case Op::reduce:
    case Op::broadcast:
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::all_to_all:
      return (p - 1) * bytes;
    case Op::scatter:
    case Op::gather:
      return (p - 1) / p * bytes;
    case Op::barrier:
      return 0;
  }
  return 0;
}

AllReduceCost all_reduce_cost(Algorithm algorithm, int ranks, double bytes) {
  const int p = ranks;
  // The largest power of two that is not above p.
  const int q = static_cast<int>(std::bit_floor(static_cast<unsigned>(p)));
  const int log_up = std::bit_width(static_cast<unsigned>(p - 1));  // log2 p, rounded up
  const int log_q = std::bit_width(static_cast<unsigned>(q)) - 1;
  const int folded = p > q ? 1 : 0;  // ranks beyond q hand their buffer to a partner first and get it back last
  const double others = bytes * (p - 1);
  switch (algorithm) {
    case Algorithm::naive:
      return {2 * (p - 1), p - 1, others, others};
    case Algorithm::exchange:
      return {p - 1, p - 1, others, others};
    case Algorithm::tree:
      return {2 * log_up, log_up, log_up * bytes, log_up * bytes};
    case Algorithm::ring:
    case Algorithm::ordered:
      return {2 * (p - 1), 2 * (p - 1), 2 * others / p, others / p};
    case Algorithm::halving_doubling:
      return {2 * log_q + 2 * folded, 2 * log_q + folded, 2 * bytes * (q - 1) / q + folded * bytes,
              bytes * (q - 1) / q + folded * bytes};
    case Algorithm::direct:
    case Algorithm::automatic:
      return {};
  }
  return {};
}

}  // namespace lockstep::measure
