// The least memory that a training run needs, computed before anything is allocated.
#pragma once

#include "lockstep/training.h"

namespace lockstep::train {

// Bytes on all ranks of one host together. Activations and temporary tensors need memory in addition.
struct Footprint {
  double weights = 0;
  double gradients = 0;  // with DistributedDataParallel, these are the buckets
  double state = 0;      // the optimizer's state

  double total() const { return weights + gradients + state; }
};

// `parameters` is the number of parameters of the whole model, which are floats.
Footprint footprint(const TrainingConfig& config, double parameters, int local_ranks);

// Throws UsageError if the footprint is larger than `available` bytes.
void check_footprint(const TrainingConfig& config, double parameters, int local_ranks, double available);

}  // namespace lockstep::train
