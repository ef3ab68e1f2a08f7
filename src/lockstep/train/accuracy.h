// How many of the test set's images a model names right.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/dataset.h"

namespace lockstep::train {

// 0 to 1, over all ranks, each of which looks at its share. Every image counts once, also when ranks do not divide
// them. Collective; the model must hold the same weights on all ranks, and is left in the mode that it was in.
double accuracy(torch::nn::SequentialImpl& model, const data::Dataset& test, Communicator& comm);

}  // namespace lockstep::train
