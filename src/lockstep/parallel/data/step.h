// The loss function that a training step takes, in all kinds of data parallelism (manual, naive, hooks, DDP).
#pragma once

#include <torch/types.h>

#include <functional>

namespace lockstep {

// Runs this rank's forward and returns its loss. Gradients are averaged over ranks. If ranks have different numbers of
// rows, the loss must therefore be scaled by (rows on this rank) * ranks / (rows on all ranks); the average is then the
// gradient of the whole batch.
using Loss = std::function<torch::Tensor()>;

}  // namespace lockstep
