// Halving and doubling: a rank swaps half of the buffer with the rank that is farthest away, then half of that half
// with a nearer rank, and so on, until each rank has the sum of one chunk. The same steps in reverse order then
// distribute the sums.
//
//   4 ranks    step 0   0 <-> 2, 1 <-> 3   halves      0 and 1 keep chunks 0 1, 2 and 3 keep chunks 2 3
//              step 1   0 <-> 1, 2 <-> 3   quarters    rank r has the sum of chunk r
//              step 2, 3                   back again
//
// This takes 2 log2 q steps and 2s(q-1)/q bytes, where q is the largest power of two that is not above p: the bytes of
// the ring in the steps of the tree. The p-q ranks beyond q first give their buffer to a partner below q and get the
// result from it at the end: 2 more steps and, for the partner, s more bytes. So it is best in the middle: for buffers
// too large for a tree, on too many ranks for a ring.
#include "lockstep/collectives/algorithms.h"

namespace lockstep::collectives::halving_doubling {
namespace {

int largest_power_up_to(int p) {
  int q = 1;
  while (2 * q <= p) q *= 2;
  return q;
}

}  // namespace

Plan all_reduce(Rank me, int p) {
  const int q = largest_power_up_to(p);
  const Chunks all{0, q};
  Plan plan{.chunks = q, .order = ChunkOrder::by_rank, .steps = {}};
  if (me >= q) {
    plan.steps.push_back({.to = me - q, .send = all});
    plan.steps.push_back({.from = me - q, .recv = all});
    return plan;
  }
  const bool has_partner = me + q < p;
  if (has_partner) plan.steps.push_back({.from = me + q, .recv = all, .arrival = Arrival::reduce, .last = q == 1});
  // region halving
  Chunks mine = all;  // what this rank still sums
  std::vector<Step> back;
  for (int d = q / 2; d >= 1; d /= 2) {
    const Rank peer = me ^ d;
    const Chunks low{mine.first, d};
    const Chunks high{mine.first + d, d};
    const bool keeps_low = me < peer;
    mine = keeps_low ? low : high;
    const Chunks theirs = keeps_low ? high : low;
    plan.steps.push_back(
        {.to = peer, .send = theirs, .from = peer, .recv = mine, .arrival = Arrival::reduce, .last = d == 1});
    back.push_back({.to = peer, .send = mine, .from = peer, .recv = theirs});
  }
  plan.steps.insert(plan.steps.end(), back.rbegin(), back.rend());
  // endregion
  if (has_partner) plan.steps.push_back({.to = me + q, .send = all});
  return plan;
}

// Doubling for any p: a rank sends what it has to the rank 1, 2, 4 ... places before it. This takes ceil(log2 p) steps
// and the fewest bytes. Chunks are counted from the rank's own, so that those of a message are always contiguous.
Plan all_gather(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::from_myself, .steps = {}};
  for (int d = 1; d < p; d *= 2) {
    const int count = d < p - d ? d : p - d;
    plan.steps.push_back({.to = (me - d + p) % p, .send = {0, count}, .from = (me + d) % p, .recv = {d, count}});
  }
  return plan;
}

// The same without data: after k steps every rank has heard, directly or indirectly, from 2^k ranks, itself included.
Plan barrier(Rank me, int p) {
  Plan plan;
  for (int d = 1; d < p; d *= 2)
    plan.steps.push_back({.to = (me + d) % p, .send = {0, 1}, .from = (me - d + p) % p, .recv = {0, 1}});
  return plan;
}

}  // namespace lockstep::collectives::halving_doubling
