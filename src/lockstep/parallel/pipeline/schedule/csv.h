// Schedules as CSV, so that users can bring their own: one line per rank, one action per cell, in the order in which
// the rank works. Empty cells are allowed and mean nothing; they can align actions that happen at the same time.
//
//   0F0,0F1,,0B0,0B1
//   ,1F0,1B0,1F1,1B1
//
// Files of PyTorch's pipelining can be read unchanged:
// 1. Their sends and receives are kept (lower.h).
// 2. A pair such as (0F5;3B2)OVERLAP_F_B becomes its two actions, one after the other.
// 3. The actions of FSDP (UNSHARD, RESHARD, REDUCE_GRAD) are left out, and Schedule::note says so.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/schedule.h"

namespace lockstep::pipeline {

std::string to_csv(const Schedule& schedule);

// The largest numbers in the text determine how many stages and microbatches there are. A stage is placed on the rank
// that has most of its actions, so the verifier finds an action that is on a wrong rank. Throws a UsageError that names
// the line and the column, both counted from 1. Whether the schedule can run is not checked here; verify() does that.
Schedule from_csv(std::string_view text, const std::string& name);

// from_csv() of a file, whose name becomes the schedule's name; "-" is stdin. Error messages begin with the path.
Schedule read_csv(const std::string& path);

}  // namespace lockstep::pipeline
