// Clips gradients by their norm, as PyTorch's clip_grad_norm_ does.
#pragma once

#include <torch/types.h>

#include <vector>

#include "lockstep/communicator.h"

namespace lockstep::parallel {

// Scales the gradients of these tensors so that their norm is at most `max_norm`. Returns the norm before scaling. If
// ranks have different tensors of one model, `ranks` is their communicator, and the norm is that of all of them; then
// the call is collective.
double clip_gradients(const std::vector<torch::Tensor>& parameters, double max_norm, double norm_type,
                      Communicator* ranks = nullptr);

}  // namespace lockstep::parallel
