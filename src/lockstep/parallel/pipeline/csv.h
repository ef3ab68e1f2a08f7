// Schedules as CSV, so that people can bring their own: one line per rank, one action per cell, in the order in which
// the rank works. Empty cells are allowed and mean nothing, so one may line up what happens at the same time.
//
//   0F0,0F1,,0B0,0B1
//   ,1F0,1B0,1F1,1B1
//
// Files of PyTorch's pipelining are read as they are:
// 1. Its sends and receives are taken over (lower.h).
// 2. A pair such as (0F5;3B2)OVERLAP_F_B becomes its two actions, one after the other.
// 3. The actions of FSDP (UNSHARD, RESHARD, REDUCE_GRAD) are left out, and Schedule::note says so.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/parallel/pipeline/schedule.h"

namespace lockstep::pipeline {

std::string to_csv(const Schedule& schedule);

// Stages and microbatches are as many as the largest numbers say. A stage is on the rank that has most of its actions,
// so one that strayed is found by the verifier. A UsageError names the line and the column, both from 1; whether the
// schedule can run is for verify() to say.
Schedule from_csv(std::string_view text, const std::string& name);

// from_csv of a file, which gives the schedule its name; "-" is stdin. Errors have the file in front.
Schedule read_csv(const std::string& path);

}  // namespace lockstep::pipeline
