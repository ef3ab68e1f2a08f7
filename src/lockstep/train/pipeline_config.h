// Checks the settings of a pipeline. Needs no libtorch.
#pragma once

#include <vector>

#include "lockstep/schedule.h"
#include "lockstep/training.h"

namespace lockstep::train {

// Both fill in what was left open, and throw UsageError if the values are inconsistent. check_stages() comes first and
// determines the numbers of ranks and stages, which the batch depends on. check_pipeline() checks the rest when the
// batch is known.
void check_stages(TrainingConfig& config);
void check_pipeline(TrainingConfig& config);

// The seconds of each stage when computation is emulated: the stages of a rank share its time equally.
std::vector<pipeline::Times> emulated_times(const pipeline::Times& of_a_rank, const pipeline::Schedule& schedule);

// The schedule that check_pipeline() has accepted.
pipeline::Schedule schedule_of(const TrainingConfig& config);

}  // namespace lockstep::train
