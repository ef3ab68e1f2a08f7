// Verifies a schedule before it runs, a built-in one or a user's, and predicts what it will cost.
//
//   Verdict verdict = examine(schedule);                // says what is wrong, if anything is
//   Prediction cost = verify(schedule).prediction;      // throws if anything is wrong
//
// A schedule may run if its lists have no fault (check.h) and if it has no deadlock with asynchronous sends, which the
// executor uses. Whether it would deadlock with blocking sends is reported as well, but is no reason to refuse it.
#pragma once

#include <string>
#include <vector>

#include "lockstep/parallel/pipeline/schedule/simulate.h"
#include "lockstep/schedule.h"

namespace lockstep::pipeline {

// The predicted cost of a schedule, if messages take no time. Activations are counted per stage
// and microbatch: from F until B or W is done, the stage keeps what its backward needs.
//
// `bubble` is for steps that run one after the other: a rank that is done early, or starts late, is idle until the
// slowest rank is done. `overlapping_bubble` is for steps that may overlap, as the papers on zero bubble count it: a
// rank's time goes from its own first action to its own last, the longest such time counts for all ranks, and the part
// of it that is not work (the mean over ranks) is bubble. Steps can overlap only with an optimizer that waits for no
// other rank.
struct Prediction {
  double makespan = 0;
  std::vector<double> busy;           // [rank], time that it works
  double bubble = 0;                  // the mean over ranks of idle time over the makespan
  double overlapping_bubble = 0;      // the same if steps may overlap: see above
  std::vector<int> peak_activations;  // [rank], activations held at once, each from F until its B or W is done
  int messages = 0;
  std::vector<std::vector<Timed>> timeline;  // [rank], including messages
};

struct Verdict {
  std::string problem;               // one line; empty: the schedule may run
  std::vector<Wait> cycle;           // the deadlock, if that is the problem
  std::vector<Wait> blocking_cycle;  // the deadlock that blocking sends would end in; empty: they work, too
  Prediction prediction;             // only of a schedule without a problem
  // The schedule that was simulated; steps in cycles are steps of its lists. There is one exception: if the given
  // schedule has its own sends and receives, steps in `blocking_cycle` are steps of the given lists.
  Schedule lowered;
};

Verdict examine(const Schedule& schedule, const StageTimes& times = {});

// Like examine(), but throws UsageError if there is a problem.
Verdict verify(const Schedule& schedule, const StageTimes& times = {});

// The waits of a cycle, in one line.
std::string describe(const std::vector<Wait>& cycle);

}  // namespace lockstep::pipeline
