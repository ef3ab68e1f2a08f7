// A plan: who sends which chunks to whom, step by step, as a value. It can be printed, drawn, and checked for lost or
// doubled chunks with no process started; run.h runs it.
//
// A plan is made for one rank. It speaks of ranks relative to the root (0 is the root, or rank 0 where there is none),
// and of chunks of a working buffer. Where they lie is said once, by `layout`.
//
// A step sends and receives at the same time, at most one message each way. `shelve` keeps what arrives beside the
// buffer; `fold` then sums own chunks and shelved ones in the order of the ranks, once all are there.
#pragma once

#include <string>
#include <vector>

#include "lockstep/collectives/types.h"

namespace lockstep::collectives {

constexpr Rank kNobody = -1;

// Chunks [first, first + count).
struct Chunks {
  int first = 0;
  int count = 0;
  bool operator==(const Chunks&) const = default;
};

enum class Arrival : std::uint8_t {
  replace,  // what arrives takes the place of what was there
  reduce,   // it is summed with it
  shelve,   // it is put aside until the fold
};

// region step
struct Step {
  Rank to = kNobody;
  Chunks send = {};
  Rank from = kNobody;
  Chunks recv = {};
  Arrival arrival = Arrival::replace;
  bool last = false;  // reduce: the sum is complete now; a mean is divided here
  bool fold = false;  // after the step: sum the shelved chunks `recv` of all ranks and our own
};
// endregion

// Where the chunks of the working buffer lie in the user's buffer.
enum class Layout : std::uint8_t {
  by_rank,      // chunk i is chunk i: work in place
  from_root,    // chunk i is that of the i-th rank counted from the root
  from_myself,  // chunk i is that of the i-th rank counted from this one
};

struct Plan {
  int chunks = 1;  // the working buffer is cut into so many
  Layout layout = Layout::by_rank;
  std::vector<Step> steps;

  void then(const Plan& next);  // the steps of another plan over the same chunks
};

// The plan of `me` among `ranks`, both relative to the root. Throws UsageError where the op has no such algorithm.
Plan make_plan(Op op, Algorithm algorithm, Rank me, int ranks);
// The algorithms that an op has, besides direct.
std::vector<Algorithm> algorithms_of(Op op);

// What a plan costs its rank: steps one after the other, messages and bytes that it sends.
struct Cost {
  int steps = 0;
  int messages = 0;
  std::size_t elements = 0;
};
Cost cost_of(const Plan& plan, std::size_t count);

// "step 0  send chunk 2 to 1, recv chunk 1 from 2 and reduce", a line a step.
std::string describe(const Plan& plan);

}  // namespace lockstep::collectives
