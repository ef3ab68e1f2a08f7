// The parameters and buffers of a module as data parallelism sees them: each tensor once, by its first name.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::parallel {

struct Named {
  std::string name;
  torch::Tensor tensor;
};

struct ModelTensors {
  std::vector<Named> trained;  // they require a gradient
  std::vector<Named> frozen;
  std::vector<Named> buffers;
};

// libtorch's parameters() lists a tensor that two layers share twice; here it is once.
ModelTensors tensors_of(const torch::nn::Module& module);

// Collective. Throws a Mismatch on all ranks when their models differ in a name, shape, type, layout or in what is
// frozen; it names the first difference.
void compare_models(const ModelTensors& tensors, Communicator& comm);

// Collective. Versions are not counted up: what autograd has saved stays valid.
void broadcast_all(const std::vector<Named>& tensors, Communicator& comm, Rank root);

}  // namespace lockstep::parallel
