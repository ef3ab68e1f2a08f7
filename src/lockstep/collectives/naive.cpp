// Naive: rank 0 does all the work. This is what a first attempt looks like, and it is the oracle for all other
// algorithms.
//
//   all-reduce, 4 ranks      1 --s--> 0    2 --s--> 0    3 --s--> 0     rank 0 adds, one after the other
//                            0 --s--> 1    0 --s--> 2    0 --s--> 3     and hands the sum out
//
// Rank 0 takes 2(p-1) steps and sends (p-1)s bytes while the others wait. So the time grows with p: this is the O(n) of
// the textbooks. In a gather or scatter every byte is sent only once, so there naive also sends the fewest bytes.
#include "lockstep/collectives/algorithms.h"

namespace lockstep::collectives::naive {
namespace {

constexpr Chunks kWhole{0, 1};

}  // namespace

// region plan
Plan reduce(Rank me, int p) {
  Plan plan;
  if (me != 0) {
    plan.steps.push_back({.to = 0, .send = kWhole});
  } else {
    for (Rank r = 1; r < p; ++r)
      plan.steps.push_back({.from = r, .recv = kWhole, .arrival = Arrival::reduce, .last = r == p - 1});
  }
  return plan;
}

Plan broadcast(Rank me, int p) {
  Plan plan;
  if (me != 0) {
    plan.steps.push_back({.from = 0, .recv = kWhole});
  } else {
    for (Rank r = 1; r < p; ++r) plan.steps.push_back({.to = r, .send = kWhole});
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
  if (me != 0) {
    plan.steps.push_back({.to = 0, .send = {me, 1}});
  } else {
    for (Rank r = 1; r < p; ++r) plan.steps.push_back({.from = r, .recv = {r, 1}});
  }
  return plan;
}

Plan scatter(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::from_root, .steps = {}};
  if (me != 0) {
    plan.steps.push_back({.from = 0, .recv = {me, 1}});
  } else {
    for (Rank r = 1; r < p; ++r) plan.steps.push_back({.to = r, .send = {r, 1}});
  }
  return plan;
}

// Gathers to rank 0, which then broadcasts the whole buffer.
Plan all_gather(Rank me, int p) {
  Plan plan = gather(me, p);
  plan.order = ChunkOrder::by_rank;
  for (Step step : broadcast(me, p).steps) {
    step.send.count = step.recv.count = p;
    plan.steps.push_back(step);
  }
  return plan;
}

// Reduces everything to rank 0, which then scatters the chunks.
Plan reduce_scatter(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::by_rank, .steps = {}};
  for (Step step : reduce(me, p).steps) {
    step.send.count = step.recv.count = p;
    plan.steps.push_back(step);
  }
  plan.then(scatter(me, p));
  return plan;
}

// All ranks exchange with rank 0 first, then with rank 1, and so on: one rank is flooded while the others wait.
// exchange.cpp does better.
Plan all_to_all(Rank me, int p) {
  Plan plan{.chunks = p, .order = ChunkOrder::by_rank, .steps = {}};
  for (Rank r = 0; r < p; ++r)
    if (r != me) plan.steps.push_back({.to = r, .send = {r, 1}, .from = r, .recv = {r, 1}});
  return plan;
}

// An all-reduce of nothing: rank 0 has heard from every rank before any rank hears from it.
Plan barrier(Rank me, int p) { return all_reduce(me, p); }

}  // namespace lockstep::collectives::naive
