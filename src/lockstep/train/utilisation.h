// How the ranks of a pipeline spent their time, computed from what each of them remembers.
#pragma once

#include "lockstep/communicator.h"
#include "lockstep/train/pipeline_strategy.h"
#include "lockstep/train/result.h"

namespace lockstep::train {

// Collective. `timed`, which must be the same on all ranks, is the number of last steps that count, at most those in
// the record. On rank 0, fills in the pipeline's figures (medians over these steps), each rank's shares and the phases
// (means over these steps). This needs the times of all ranks, because only they show what a wait was: waiting for a
// message that had not been sent yet is bubble, not communication. For all ranks of a pipeline, a step begins with the
// first computation on any of them.
void gather_pipeline(const PipelineRecord& mine, std::size_t timed, Communicator& comm, Result& result);

}  // namespace lockstep::train
