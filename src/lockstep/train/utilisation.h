// Where the time of a pipeline's ranks went, from what each of them remembers.
#pragma once

#include "lockstep/comm/communicator.h"
#include "lockstep/train/pipeline_strategy.h"
#include "lockstep/train/result.h"

namespace lockstep::train {

// Collective, with the same `timed` on all ranks: the number of last steps that count, of those that the record has. On
// rank 0 it fills in the pipeline's figures, each rank's shares and the phases, as means over these steps. Only all
// ranks together can tell what a wait was: waiting for a message that had not been sent yet is bubble, and not
// communication. A step begins for all ranks of a pipeline with its first action.
void gather_pipeline(const PipelineRecord& mine, std::size_t timed, Communicator& comm, Result& result);

}  // namespace lockstep::train
