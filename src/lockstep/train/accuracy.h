// The share of the test set's images that a model classifies correctly.
#pragma once

#include "lockstep/communicator.h"
#include "lockstep/data.h"
#include "lockstep/train/strategy.h"

namespace lockstep::train {

// Returns 0 to 1. Each replica of the model looks at its share of the images, and every image counts once, also when
// their number is not a multiple of the number of replicas. Collective over `comm`, which has all ranks of all
// replicas. All replicas must hold the same weights. The model is left in the mode (training or evaluation) in which it
// was.
double accuracy(Strategy& strategy, const data::Dataset& test, Communicator& comm, int replicas);

}  // namespace lockstep::train
