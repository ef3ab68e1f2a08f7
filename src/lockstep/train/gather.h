// From what each rank knows to what rank 0 tells.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/train/result.h"
#include "lockstep/train/strategy.h"

namespace lockstep::train {

// One rank's side of a run.
struct Local {
  std::vector<StepResult> steps;
  std::string digest;  // 64 letters
  std::size_t peak = 0, pss = 0;
  const PipelineRecord* pipeline = nullptr;
};

// Collective. On rank 0: losses, times, digests and memory of all ranks. Elsewhere these are of no use.
Result gather_results(const Local& mine, const TrainingConfig& config, Communicator& comm);

}  // namespace lockstep::train
