// The parameters and buffers of a module as data parallelism sees them: each tensor once, by its first name.
#pragma once

#include <torch/nn/module.h>

#include <memory>
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

// What is registered in a module and its submodules, as it was when this was made. Cheap enough for every forward.
class Registered {
 public:
  explicit Registered(const torch::nn::Module& module) { add(module); }
  // True when a parameter or a submodule has come, gone or been replaced.
  bool changed() const;

 private:
  struct One {
    const torch::nn::Module* module;
    std::vector<const at::TensorImpl*> parameters;
    std::vector<std::shared_ptr<torch::nn::Module>> children;  // kept, so that no other takes the same place
  };
  void add(const torch::nn::Module& module);

  std::vector<One> modules_;
};

// Collective. Throws a Mismatch on all ranks when their models differ in a name, shape, type, layout or in what is
// frozen; it names the first difference.
void compare_models(const ModelTensors& tensors, Communicator& comm);

// Collective. Versions are not counted up: what autograd has saved stays valid.
void broadcast_all(const std::vector<Named>& tensors, Communicator& comm, Rank root);

}  // namespace lockstep::parallel
