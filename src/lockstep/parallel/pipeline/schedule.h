// Pipeline schedules as data: who computes what in which order, as one list of actions per rank. Nothing here runs; the
// lists can be printed, drawn, written to a file, and proven right (verify.h) before anything starts.
//
// A schedule says only what is computed. lower.h adds the sends and receives that follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/types.h"
#include "lockstep/parallel/pipeline/action.h"

namespace lockstep::pipeline {

struct Schedule {
  std::string name;
  int stages = 0;  // all stages, including virtual ones
  int ranks = 0;
  int microbatches = 0;
  std::vector<Rank> rank_of_stage;
  std::vector<std::vector<Action>> actions;  // [rank], in the order in which the rank works
  std::string note = {};                     // a sentence about what was left out of a file (csv.h); empty: nothing

  bool operator==(const Schedule&) const = default;
};

// The built-in schedules: naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zbv, v-half, v-min, dualpipev.
const std::vector<std::string>& schedule_names();

// Returns the schedule `name` for `ranks` ranks. `virtual_stages` is the number of stages on each rank: any number for
// interleaved (the default is 2), 2 for zbv, v-half, v-min and dualpipev, and 1 for the others. Stage s is on rank s
// mod ranks; but in zbv, v-half, v-min and dualpipev, which form a V, rank r has stages r and 2*ranks-1-r.
// Throws UsageError if there is no such schedule, or if the numbers do not fit it.
Schedule make_schedule(const std::string& name, int ranks, int microbatches, std::optional<int> virtual_stages = {});

// Throws the UsageError that says that there are more stages than the network has layers.
[[noreturn]] void refuse_stages(int stages, std::int64_t layers);

// True if the schedule contains sends or receives.
bool is_lowered(const Schedule& schedule);

// The largest number of stages on one rank.
int virtual_stages(const Schedule& schedule);

}  // namespace lockstep::pipeline
