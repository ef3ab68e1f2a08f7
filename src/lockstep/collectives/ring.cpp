// Ring: the buffer is divided into p chunks, one per rank. In p-1 steps each chunk travels once around the ring and
// collects every rank's share (reduce-scatter). In p-1 more steps the complete chunks travel around the ring again
// (all-gather).
//
//   step 0   rank 0 --c2--> rank 1 --c0--> rank 2 --c1--> rank 0
//   step 1   rank 0 --c1--> rank 1 --c2--> rank 2 --c0--> rank 0     now rank r holds the whole of chunk r
//   step 2   rank 0 --c0--> rank 1 --c1--> rank 2 --c2--> rank 0
//   step 3   rank 0 --c2--> rank 1 --c0--> rank 2 --c1--> rank 0     now everyone holds everything
//
// Each rank sends 2s(p-1)/p bytes, which is the minimum, and every link carries the same amount: best for large
// buffers. The 2(p-1) steps follow one another: poor for small buffers.
#include "lockstep/collectives/algorithms.h"

namespace lockstep::collectives::ring {
namespace {

struct Neighbours {
  Rank next;
  Rank prev;
};

Neighbours neighbours(Rank me, int p) { return {(me + 1) % p, (me + p - 1) % p}; }

// Chunk numbers wrap around.
Chunks chunk(int number, int p) { return {(number % p + p) % p, 1}; }

}  // namespace

// region plan
Plan reduce_scatter(Rank me, int p) {
  const auto [next, prev] = neighbours(me, p);
  Plan plan{.chunks = p, .order = ChunkOrder::by_rank, .steps = {}};
  for (int s = 0; s < p - 1; ++s)
    plan.steps.push_back({.to = next,
                          .send = chunk(me - s - 1, p),
                          .from = prev,
                          .recv = chunk(me - s - 2, p),
                          .arrival = Arrival::reduce,
                          .last = s == p - 2});
  return plan;
}

Plan all_gather(Rank me, int p) {
  const auto [next, prev] = neighbours(me, p);
  Plan plan{.chunks = p, .order = ChunkOrder::by_rank, .steps = {}};
  for (int s = 0; s < p - 1; ++s)
    plan.steps.push_back({.to = next, .send = chunk(me - s, p), .from = prev, .recv = chunk(me - s - 1, p)});
  return plan;
}

Plan all_reduce(Rank me, int p) {
  Plan plan = reduce_scatter(me, p);
  plan.then(all_gather(me, p));
  return plan;
}
// endregion

// The root scatters the chunks, which then travel around the ring. The root sends about twice the bytes of the buffer,
// but in the second phase all links work at once.
Plan broadcast(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::by_rank, .steps = {}};
  plan.then(naive::scatter(me, p));
  plan.then(all_gather(me, p));
  return plan;
}

// Each rank sums one chunk and sends it to the root.
Plan reduce(Rank me, int p) {
  Plan plan = reduce_scatter(me, p);
  plan.then(naive::gather(me, p));
  return plan;
}

}  // namespace lockstep::collectives::ring
