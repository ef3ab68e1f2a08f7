// What a training step of every rung is made of.
#pragma once

#include <torch/types.h>

#include <functional>

namespace lockstep {

// Runs this rank's forward and gives its loss. Every rung averages gradients over ranks, so where ranks have different
// numbers of rows a loss is scaled by rows * ranks / all rows: the average is then that of the whole batch.
using Loss = std::function<torch::Tensor()>;

}  // namespace lockstep
