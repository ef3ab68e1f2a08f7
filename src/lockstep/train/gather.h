// Collects the figures of all ranks, so that rank 0 can report them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/train/result.h"
#include "lockstep/train/step_log.h"
#include "lockstep/train/strategy.h"

namespace lockstep::train {

// The figures of one rank.
struct RankReport {
  StepLog steps;
  std::string digest;  // 64 hexadecimal digits
  std::size_t peak = 0, pss = 0;
  const PipelineRecord* pipeline = nullptr;
};

// Collective. On rank 0 the result has the losses, times, digests and memory of all ranks. On other ranks it is
// incomplete and must not be used.
Result gather_results(const RankReport& mine, const TrainingConfig& config, Communicator& comm);

}  // namespace lockstep::train
