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
//
// `bubble` is for steps one after the other: a rank that is done early, or starts late, is idle until the slowest is
// done. `overlapping_bubble` is for steps that may overlap, as the papers on zero bubble count it: a rank's time goes
// from its own first action to its own last, the longest such time counts, and the part of it that is not work (the
// mean over ranks) is bubble. That needs an optimizer that waits for no other rank.
struct Prediction {
  double makespan = 0;
  std::vector<double> busy;           // [rank]
  double bubble = 0;                  // the mean over ranks of idle time over the makespan
  double overlapping_bubble = 0;      // the same if steps may overlap: see below
  std::vector<int> peak_activations;  // [rank], inputs of a stage for a microbatch, held from F until B or W is done
  int messages = 0;
  std::vector<std::vector<Timed>> timeline;  // [rank], messages too
};

struct Verdict {
  std::string problem;               // one line; empty: it may run
  std::vector<Wait> cycle;           // if the problem is a deadlock
  std::vector<Wait> blocking_cycle;  // what blocking sends and receives would come to; empty: they work too
  Prediction prediction;             // of a schedule without a problem
  // What was run: steps in cycles are steps of this. Only those of a blocking cycle are steps of the schedule itself,
  // if it has sends and receives of its own.
  Schedule lowered;
};

Verdict examine(const Schedule& schedule, const StageTimes& times = {});

// As examine, but a problem is a UsageError.
Verdict verify(const Schedule& schedule, const StageTimes& times = {});

// The waits of a cycle in one line.
std::string describe(const std::vector<Wait>& cycle);

}  // namespace lockstep::pipeline
