// Exchange: every rank sends to every other rank, all at once.
//
//   all-reduce, 3 ranks     step 0    0 --s--> 1 --s--> 2 --s--> 0      to the next rank
//                           step 1    0 --s--> 2 --s--> 1 --s--> 0      to the one after it
//                           then everyone sums all p buffers in rank order, so all have the same bits
//
// This takes p-1 steps and (p-1)s bytes per rank: p(p-1) messages in all, which is the O(n^2) of the textbooks. With 2
// ranks and small buffers nothing is faster, because it is a single step.
#include "lockstep/collectives/algorithms.h"

namespace lockstep::collectives::exchange {

// region plan
Plan all_reduce(Rank me, int p) {
  Plan plan;
  for (int k = 1; k < p; ++k)
    plan.steps.push_back({.to = (me + k) % p,
                          .send = {0, 1},
                          .from = (me - k + p) % p,
                          .recv = {0, 1},
                          .arrival = Arrival::shelve,
                          .fold = k == p - 1});
  return plan;
}
// endregion

Plan all_gather(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::by_rank, .steps = {}};
  for (int k = 1; k < p; ++k) {
    const Rank from = (me - k + p) % p;
    plan.steps.push_back({.to = (me + k) % p, .send = {me, 1}, .from = from, .recv = {from, 1}});
  }
  return plan;
}

// In step k every rank sends to the rank k places after it, so that no rank receives two messages in one step.
Plan all_to_all(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::by_rank, .steps = {}};
  for (int k = 1; k < p; ++k) {
    const Rank to = (me + k) % p;
    const Rank from = (me - k + p) % p;
    plan.steps.push_back({.to = to, .send = {to, 1}, .from = from, .recv = {from, 1}});
  }
  return plan;
}

}  // namespace lockstep::collectives::exchange
