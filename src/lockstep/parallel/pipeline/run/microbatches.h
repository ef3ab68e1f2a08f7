// Cuts a batch into microbatches: rows stay in order, and the microbatches are as equal as possible. If they cannot be
// equal, the first ones are larger.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::pipeline {

// Returns views of the batch. Throws UsageError if there are more microbatches than rows, or less than one.
inline std::vector<torch::Tensor> cut_batch(const torch::Tensor& batch, int microbatches) {
  const std::int64_t rows = batch.dim() == 0 ? 0 : batch.size(0);
  if (microbatches < 1 || microbatches > rows)
    throw UsageError(std::to_string(microbatches) + " microbatches of a batch of " + std::to_string(rows) + " samples",
                     rows < 1 ? "a batch with samples" : "1 to " + std::to_string(rows) + " microbatches");
  return batch.tensor_split(microbatches);
}

}  // namespace lockstep::pipeline
