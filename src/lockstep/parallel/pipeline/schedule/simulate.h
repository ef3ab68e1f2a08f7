// Simulates a lowered schedule: one clock per rank, messages that take no time, and ranks that wait for each other as
// real ones would. The result says how long the whole schedule takes, or which ranks wait for each other for ever.
//
// A receive waits at its place in the list for its message, which is identified by stage and microbatch. What a send
// does depends on `Sends`:
// - Sends::asynchronous: it hands the message over, and the rank continues. Lockstep's sends and MPI_Isend do that.
// - Sends::blocking: it waits until the other rank is in the matching receive (a rendezvous), as MPI_Send may do for
//   large messages, and as a send without a buffer always does.
//
// Every rank does one thing after another, so the result does not depend on the order in which the simulator visits the
// ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep::pipeline {

enum class Sends { asynchronous, blocking };

// The times of each stage, or the same times for all stages. All must be above 0.
class StageTimes {
 public:
  StageTimes(const Times& all = {}) : times_{all} {}
  explicit StageTimes(std::vector<Times> of_stages) : times_(std::move(of_stages)) {}

  double of(const Action& action) const {
    return times_[times_.size() == 1 ? 0 : static_cast<std::size_t>(action.stage)].of(action.kind);
  }

 private:
  std::vector<Times> times_;
};

// An action with its start and its end. A message takes no time: it begins and ends at the moment at which it can
// proceed.
struct Timed {
  Action action;
  double begin = 0;
  double end = 0;
};

// One rank that cannot continue: it is at `step` of its list, and the other end of the message there is at `its_step`
// of the list of `peer`.
struct Wait {
  Rank rank = 0;
  int step = 0;
  Action action;
  Rank peer = 0;
  int its_step = 0;
};

struct Simulation {
  std::vector<std::vector<Timed>> ranks;  // [rank], the actions that it has completed
  double makespan = 0;
  std::vector<Wait> cycle;  // each rank waits for the next one, and the last for the first; empty: no deadlock
};

// `lowered` must have no fault (check.h).
Simulation simulate(const Schedule& lowered, const StageTimes& times, Sends sends);

// As in "rank 0 at step 3 (0SEND_F1) waits for 1RECV_F1, step 4 of rank 1".
std::string describe(const Wait& wait);

}  // namespace lockstep::pipeline
