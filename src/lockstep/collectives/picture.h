// A picture of a plan: what all ranks do tick by tick, drawn from the plans that run.
#pragma once

#include <string>
#include <vector>

#include "lockstep/collectives/plan.h"

namespace lockstep::collectives {

// One message of the whole, and when it travels. A step takes a tick; a receive waits for its message.
struct Flow {
  int tick;
  Rank from;
  Rank to;
  Chunks chunks;
  Arrival arrival;
};

// How many ranks' shares are in each chunk of each rank, after a tick.
struct Moment {
  std::vector<std::vector<int>> shares;  // [rank][chunk]
};

struct Film {
  int ranks = 0;
  int chunks = 0;
  std::vector<Flow> flows;      // by tick
  std::vector<Moment> moments;  // before the first tick, and after each
};

Film play(Op op, Algorithm algorithm, int ranks);

// "step 0   0 -c2-> 1   1 -c0-> 2   2 -c1-> 0", a line a tick.
std::string text_of(const Film& film);
// Ranks from top to bottom, ticks from left to right; a box is a chunk, the darker the more shares are in it.
std::string svg_of(const Film& film, const std::string& title);

}  // namespace lockstep::collectives
