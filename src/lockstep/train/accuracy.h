// How many of the test set's images a model names right.
#pragma once

#include "lockstep/comm/communicator.h"
#include "lockstep/data/dataset.h"
#include "lockstep/train/strategy.h"

namespace lockstep::train {

// 0 to 1, over all replicas of the model, each of which looks at its share. Every image counts once, also when replicas
// do not divide them. Collective over `comm`, all ranks of all replicas; these hold the same weights, which are left in
// the mode that they were in.
double accuracy(Strategy& strategy, const data::Dataset& test, Communicator& comm, int replicas);

}  // namespace lockstep::train
