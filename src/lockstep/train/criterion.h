// What a model is trained to make small.
#pragma once

#include <torch/types.h>

#include "lockstep/data/batch.h"

namespace lockstep::train {

// The mean over the rows: cross-entropy for classes (integer targets), squared error for numbers. Without rows, zero,
// with a graph all the same: a rank that has none takes part in backward as the others do.
torch::Tensor mean_loss(const torch::Tensor& output, const torch::Tensor& targets);

}  // namespace lockstep::train
