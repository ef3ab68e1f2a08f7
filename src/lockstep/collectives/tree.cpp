// Binomial tree: pairs of ranks, then pairs of pairs, and so on.
//
//   reduce, 8 ranks     step 0    1 -> 0    3 -> 2    5 -> 4    7 -> 6
//                       step 1    2 -> 0              6 -> 4
//                       step 2    4 -> 0
//   A broadcast is the same in reverse order; an all-reduce is a reduce and then a broadcast.
//
// An all-reduce takes 2 ceil(log2 p) steps of s bytes each. That is best if a step costs more than its bytes, so for
// small buffers and many ranks. The root sends s ceil(log2 p) bytes, more than in a ring. In gather and scatter a rank
// sends the chunks of the whole subtree behind it: there are fewer messages, but more bytes.
#include <algorithm>

#include "lockstep/collectives/algorithms.h"

namespace lockstep::collectives::tree {
namespace {

constexpr Chunks kWhole{0, 1};

// The chunks of ranks r to r+d-1, as far as these ranks exist: a subtree of at most d ranks with root r.
Chunks subtree(Rank r, int d, int p) { return {r, std::min(d, p - r)}; }

int top(int p) {
  int d = 1;
  while (d < p) d *= 2;
  return d;
}

// True if the step of distance d is the last one in which the root receives.
bool is_last(int d, int p) { return 2 * d >= p; }

}  // namespace

// region plan
Plan reduce(Rank me, int p) {
  Plan plan;
  for (int d = 1; d < p; d *= 2) {
    if (me % (2 * d) == d) {
      plan.steps.push_back({.to = me - d, .send = kWhole});
      break;
    }
    if (me + d < p)
      plan.steps.push_back(
          {.from = me + d, .recv = kWhole, .arrival = Arrival::reduce, .last = me == 0 && is_last(d, p)});
  }
  return plan;
}

Plan broadcast(Rank me, int p) {
  Plan plan;
  for (int d = top(p) / 2; d >= 1; d /= 2) {
    if (me % (2 * d) == d) plan.steps.push_back({.from = me - d, .recv = kWhole});
    if (me % (2 * d) == 0 && me + d < p) plan.steps.push_back({.to = me + d, .send = kWhole});
  }
  return plan;
}

Plan all_reduce(Rank me, int p) {
  Plan plan = reduce(me, p);
  plan.then(broadcast(me, p));
  return plan;
}
// endregion

Plan gather(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::from_root, .steps = {}};
  for (int d = 1; d < p; d *= 2) {
    if (me % (2 * d) == d) {
      plan.steps.push_back({.to = me - d, .send = subtree(me, d, p)});
      break;
    }
    if (me + d < p) plan.steps.push_back({.from = me + d, .recv = subtree(me + d, d, p)});
  }
  return plan;
}

Plan scatter(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::from_root, .steps = {}};
  for (int d = top(p) / 2; d >= 1; d /= 2) {
    if (me % (2 * d) == d) plan.steps.push_back({.from = me - d, .recv = subtree(me, d, p)});
    if (me % (2 * d) == 0 && me + d < p) plan.steps.push_back({.to = me + d, .send = subtree(me + d, d, p)});
  }
  return plan;
}

Plan all_gather(Rank me, int p) {
  Plan plan = gather(me, p);
  plan.order = ChunkOrder::by_rank;
  for (Step step : broadcast(me, p).steps) {
    step.send.count = step.recv.count = p;
    plan.steps.push_back(step);
  }
  return plan;
}

Plan reduce_scatter(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::by_rank, .steps = {}};
  for (Step step : reduce(me, p).steps) {
    step.send.count = step.recv.count = p;
    plan.steps.push_back(step);
  }
  plan.then(scatter(me, p));
  return plan;
}

}  // namespace lockstep::collectives::tree
