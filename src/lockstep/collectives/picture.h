// A picture of a plan: what all ranks do tick by tick, drawn from the plans that run.
#pragma once

#include <string>
#include <vector>

#include "lockstep/collectives/plan.h"

namespace lockstep::collectives {

// One message, and the tick in which it travels. A step takes one tick; a receive waits for its message.
struct Flow {
  int tick;
  Rank from;
  Rank to;
  Chunks chunks;
  Arrival arrival;
};

// How many ranks' shares each chunk of each rank contains after a tick.
struct Moment {
  std::vector<std::vector<int>> shares;  // [rank][chunk]
};

struct Playback {
  int ranks = 0;
  int chunks = 0;
  std::vector<Flow> flows;      // in the order of ticks
  std::vector<Moment> moments;  // before the first tick, and after each tick
};

Playback play(Op op, Algorithm algorithm, int ranks);

// "step 0   0 -c2-> 1   1 -c0-> 2   2 -c1-> 0", one line per tick.
std::string text_of(const Playback& playback);
// Ranks go from top to bottom and ticks from left to right. A box is a chunk; the more shares it contains, the darker
// it is.
std::string svg_of(const Playback& playback, const std::string& title);

}  // namespace lockstep::collectives
