// The parameters and buffers of a module as data parallelism sees them: each tensor once, under its first name.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/communicator.h"

namespace lockstep::parallel {

struct Named {
  std::string name;
  torch::Tensor tensor;
};

struct ModelTensors {
  std::vector<Named> trained;  // parameters that require a gradient
  std::vector<Named> frozen;
  std::vector<Named> buffers;
};

// libtorch's parameters() lists a tensor twice if two layers share it. This function lists it once.
ModelTensors tensors_of(const torch::nn::Module& module);

// A snapshot of the parameters and submodules that are registered in a module and in its submodules. Checking for
// changes is cheap enough for every forward.
class Registered {
 public:
  explicit Registered(const torch::nn::Module& module) { add(module); }
  // True if a parameter or a submodule was added, removed or replaced since the snapshot.
  bool changed() const;

 private:
  struct One {
    const torch::nn::Module* module;
    std::vector<const at::TensorImpl*> parameters;
    std::vector<std::shared_ptr<torch::nn::Module>> children;  // kept alive, so that their addresses are not reused
  };
  void add(const torch::nn::Module& module);

  std::vector<One> modules_;
};

// Collective. Throws Mismatch on all ranks if their models differ in a name, shape, type or layout, or in which
// parameters are frozen. The message names the first difference.
void compare_models(const ModelTensors& tensors, Communicator& comm);

// Collective. Copies the tensors of rank `root` to all ranks. The version counters of contiguous tensors are not
// incremented, so what autograd has saved stays valid.
void broadcast_all(const std::vector<Named>& tensors, Communicator& comm, Rank root);

}  // namespace lockstep::parallel
