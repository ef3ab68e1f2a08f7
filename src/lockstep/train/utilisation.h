// Where the time of a pipeline's ranks went, from what each of them remembers.
#pragma once

#include "lockstep/comm/communicator.h"
#include "lockstep/train/pipeline_strategy.h"
#include "lockstep/train/result.h"

namespace lockstep::train {

// Collective, with the same `timed` everywhere: so many of the last steps count. On rank 0: fills in the pipeline's
// figures, each rank's shares and what of the phases only all ranks together can tell: waiting for a message that
// nobody had sent yet is bubble, and not communication.
void gather_pipeline(const PipelineRecord& mine, std::size_t timed, Communicator& comm, Result& result);

}  // namespace lockstep::train
