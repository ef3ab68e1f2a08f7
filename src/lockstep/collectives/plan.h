// A plan: the steps of one rank in a collective, as a value. It says who sends which chunks to whom. It can be printed,
// drawn, and checked for lost or duplicated chunks without starting a process; run.h runs it.
//
// A plan is made for one rank. Ranks in it are numbered relative to the root: 0 is the root, or rank 0 if the operation
// has no root. Chunks are those of a working buffer; `order` says where they lie in the user's buffer.
//
// A step sends and receives at the same time, at most one message in each direction. `shelve` keeps the received chunks
// beside the buffer. When the chunks of all ranks are there, `fold` sums the rank's own chunks and the shelved ones in
// rank order.
#pragma once

#include <string>
#include <vector>

#include "lockstep/buffer.h"

namespace lockstep::collectives {

constexpr Rank kNobody = -1;

// Chunks [first, first + count).
struct Chunks {
  int first = 0;
  int count = 0;
  bool operator==(const Chunks&) const = default;
};

enum class Arrival : std::uint8_t {
  replace,  // the received data replaces what was there
  reduce,   // the received data is combined with what was there
  shelve,   // the received data is kept aside until the fold
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
enum class ChunkOrder : std::uint8_t {
  by_rank,      // chunk i is chunk i of the user's buffer: the plan works in place
  from_root,    // chunk i belongs to the i-th rank counted from the root
  from_myself,  // chunk i belongs to the i-th rank counted from this rank
};

struct Plan {
  int chunks = 1;  // number of chunks of the working buffer
  ChunkOrder order = ChunkOrder::by_rank;
  std::vector<Step> steps;

  void then(const Plan& next);  // appends the steps of another plan over the same chunks
};

// The plan of rank `me` among `ranks` ranks, where `me` is relative to the root. Throws UsageError if the operation has
// no such algorithm.
Plan make_plan(Op op, Algorithm algorithm, Rank me, int ranks);
// The algorithms of an operation, except direct, which has no plan.
std::vector<Algorithm> algorithms_of(Op op);

// What a plan costs its rank: the number of its steps, and the messages and elements that it sends.
struct Cost {
  int steps = 0;
  int messages = 0;
  std::size_t elements = 0;
};
Cost cost_of(const Plan& plan, std::size_t count);

// "step 0  send chunk 2 to 1, recv chunk 1 from 2 and reduce", one line per step.
std::string describe(const Plan& plan);

}  // namespace lockstep::collectives
