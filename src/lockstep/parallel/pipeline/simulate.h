// Runs a lowered schedule without running anything: a clock for each rank, messages that take no time, and ranks that
// wait for each other as real ones would. It tells how long the whole takes, or who waits for whom for ever.
//
// A receive waits at its place in the list for its message, known by stage and microbatch. What a send does depends:
// - Sends::asynchronous: it hands the message over and goes on. Lockstep's sends and MPI_Isend are like that.
// - Sends::blocking: it waits until the other rank is in the matching receive (a rendezvous), as MPI_Send may for large
//   messages, and as a send without a buffer always does.
//
// Every rank does one thing after another, so the result does not depend on the order in which ranks are looked at.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/pipeline/schedule.h"

namespace lockstep::pipeline {

enum class Sends { asynchronous, blocking };

// How long the actions of a stage take, in any unit; B takes I + W. All above 0.
struct Times {
  double forward = 1;
  double input = 1;
  double weight = 1;

  double of(Kind kind) const;
};

// The times of each stage, or the same for all. All above 0.
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

// An action with its time. Messages have none: they begin and end at the moment at which both sides have what they
// need.
struct Timed {
  Action action;
  double begin = 0;
  double end = 0;
};

// One rank that can't go on: it is at `step`, and the other end of that message is at `its_step` of `peer`'s list.
struct Wait {
  Rank rank = 0;
  int step = 0;
  Action action;
  Rank peer = 0;
  int its_step = 0;
};

struct Simulation {
  std::vector<std::vector<Timed>> ranks;  // as far as each came
  double makespan = 0;
  std::vector<Wait> cycle;  // each waits for the rank of the next, the last for the first; empty: no deadlock
};

// `lowered` has no fault (check.h).
Simulation simulate(const Schedule& lowered, const StageTimes& times, Sends sends);

// "rank 0 at step 3 (0SEND_F1) waits for 1RECV_F1, step 4 of rank 1"
std::string describe(const Wait& wait);

}  // namespace lockstep::pipeline
