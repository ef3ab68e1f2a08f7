// When a rank did what, and what follows from it: how much of a step was arithmetic, how much communication, and how
// much bubble.
#pragma once

#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/parallel/pipeline/action.h"

namespace lockstep::pipeline {

struct Moment {
  Action action;
  Clock::time_point began;
  Clock::time_point ended;
};

struct Timeline {
  std::vector<Moment> moments;  // one an action of the lowered list, in its order
  Clock::time_point began;
  Clock::time_point ended;  // all sends are done
};

// Seconds of one rank, out of the time from the first action that computes to the end of the last, on any rank: who
// comes early to a step waits in the one before.
struct Utilisation {
  double compute = 0;
  double communication = 0;  // in sends, and in receives whose message was there or on its way
  double bubble = 0;         // nothing to do: waiting for a message that nobody had sent yet, for the first, the last
};

// [rank], from the timelines of all ranks in the same step, on one clock (ranks of one host have the same).
std::vector<Utilisation> utilisation(const std::vector<Timeline>& ranks);

}  // namespace lockstep::pipeline
