// What follows from the times at which ranks did their actions: how much of a step was computation, how much
// communication, and how much bubble.
#pragma once

#include <vector>

#include "lockstep/pipeline.h"

namespace lockstep::pipeline {

// How one rank spent a step, in seconds. The step lasts from the start of the first computation on any rank to the end
// of the last computation on any rank. Time before that does not count, because a rank that enters a step early still
// waits for the others to finish the step before.
struct Utilisation {
  double compute = 0;
  double communication = 0;  // in sends, and in receives whose message had been sent already
  double bubble = 0;         // idle: no work yet, none left, or waiting for a message that was not sent yet
};

// [rank], computed from the timelines of all ranks in the same step. All times must come from one clock, as they do on
// one host.
std::vector<Utilisation> utilisation(const std::vector<Timeline>& ranks);

}  // namespace lockstep::pipeline
