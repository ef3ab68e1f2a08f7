// The loss that training minimizes.
#pragma once

#include <torch/types.h>

#include "lockstep/data.h"

namespace lockstep::train {

// The mean loss over the rows, and over the positions of each row if it has several: cross-entropy for classes (integer
// targets), squared error for numbers. Without rows the result is zero but still has a graph, so that a rank without
// rows takes part in backward like the others.
torch::Tensor mean_loss(const torch::Tensor& output, const torch::Tensor& targets);

}  // namespace lockstep::train
