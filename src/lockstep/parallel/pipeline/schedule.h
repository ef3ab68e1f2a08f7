// Pipeline schedules as data: who computes what in which order, as one list of actions a rank. Nothing here runs; the
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
  int stages = 0;  // all, virtual ones included
  int ranks = 0;
  int microbatches = 0;
  std::vector<Rank> rank_of_stage;
  std::vector<std::vector<Action>> actions;  // [rank], each in the order in which the rank works

  bool operator==(const Schedule&) const = default;
};

// "naive", "gpipe", "1f1b", "interleaved", "zb-h1": each a file of its own, from slowest to least idle.
const std::vector<std::string>& schedule_names();

// The schedule `name` for so many ranks. virtual_stages are the stages of one rank: stage s is on rank s mod ranks.
// Only interleaved takes another number than 1, and 2 unless told. A UsageError says what can't be.
Schedule make_schedule(const std::string& name, int ranks, int microbatches, std::optional<int> virtual_stages = {});

// Throws the UsageError for more stages than the network has layers.
[[noreturn]] void refuse_stages(int stages, std::int64_t layers);

// True when sends and receives are in it.
bool is_lowered(const Schedule& schedule);

// The most stages that one rank has.
int virtual_stages(const Schedule& schedule);

}  // namespace lockstep::pipeline
