// A fingerprint of weights: equal digests mean equal bits.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

namespace lockstep::weights {

// SHA-256 over the elements of the tensors, in the given order, as hexadecimal text. Shapes, names and types do not
// count.
std::string digest(const std::vector<torch::Tensor>& tensors);

}  // namespace lockstep::weights
