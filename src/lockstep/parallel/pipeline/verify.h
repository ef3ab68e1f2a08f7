// Proves a schedule before it runs, one of ours or a user's, and predicts what it will cost.
//
//   Verdict verdict = examine(schedule);                // says what is wrong, if anything
//   Prediction cost = verify(schedule).prediction;      // throws if anything is
//
// What may run has no fault in its lists (check.h) and no deadlock with asynchronous sends, which is how it is run.
// Whether blocking sends would deadlock is told as well, and refuses nothing.
#pragma once

#include <string>
#include <vector>

#include "lockstep/parallel/pipeline/schedule.h"
#include "lockstep/parallel/pipeline/simulate.h"

namespace lockstep::pipeline {

// With messages that take no time.
struct Prediction {
  double makespan = 0;
  std::vector<double> busy;           // [rank]
  double bubble = 0;                  // the mean over ranks of idle time over the makespan
  std::vector<int> peak_activations;  // [rank], inputs of a stage for a microbatch, held from F until B or W is done
  int messages = 0;
  std::vector<std::vector<Timed>> timeline;  // [rank], messages too
};

struct Verdict {
  std::string problem;               // one line; empty: it may run
  std::vector<Wait> cycle;           // if the problem is a deadlock
  std::vector<Wait> blocking_cycle;  // what blocking sends would come to; empty: they work too
  Prediction prediction;             // of a schedule without a problem
  Schedule lowered;                  // what was run: steps in cycles are steps of this
};

Verdict examine(const Schedule& schedule, const StageTimes& times = {});

// As examine, but a problem is a UsageError.
Verdict verify(const Schedule& schedule, const StageTimes& times = {});

// The waits of a cycle in one line.
std::string describe(const std::vector<Wait>& cycle);

}  // namespace lockstep::pipeline
