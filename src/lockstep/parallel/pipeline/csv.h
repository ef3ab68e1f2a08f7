// Schedules as CSV, so that people can bring their own: a line a rank, a cell an action, in the order in which the rank
// works. Empty cells are allowed and mean nothing, so one may line up what happens at the same time.
//
//   0F0,0F1,,0B0,0B1
//   ,1F0,1B0,1F1,1B1
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
