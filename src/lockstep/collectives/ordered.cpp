// Ordered: each rank collects its chunk from all other ranks and sums it in rank order; then the chunks travel around
// the ring.
//
//   3 ranks    step 0   everyone sends the next rank its chunk       step 1   and the one after it
//              then rank r sums chunk r: rank 0's, plus rank 1's, plus rank 2's
//              step 2, 3   all-gather, as in a ring
//
// This takes the bytes of the ring, 2s(p-1)/p, in as many steps. An element is always summed in the same order, so the
// bits of a sum do not depend on where the chunks begin, on which rank came first, or on the number of buckets.
// `direct` gives the same bits.
#include "lockstep/collectives/algorithms.h"

namespace lockstep::collectives::ordered {

Plan reduce_scatter(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::by_rank, .steps = {}};
  for (int k = 1; k < p; ++k) {
    const Rank to = (me + k) % p;
    plan.steps.push_back({.to = to,
                          .send = {to, 1},
                          .from = (me - k + p) % p,
                          .recv = {me, 1},
                          .arrival = Arrival::shelve,
                          .fold = k == p - 1});
  }
  return plan;
}

Plan all_reduce(Rank me, int p) {
  Plan plan = reduce_scatter(me, p);
  plan.then(ring::all_gather(me, p));
  return plan;
}

Plan reduce(Rank me, int p) {
  Plan plan = reduce_scatter(me, p);
  plan.then(naive::gather(me, p));
  return plan;
}

}  // namespace lockstep::collectives::ordered
