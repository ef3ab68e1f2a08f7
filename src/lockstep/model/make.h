// Makes a model from its configuration, and tells how large a model is.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/model/config.h"

namespace lockstep::model {

// Weights are drawn from torch's default generator: after the same torch::manual_seed they are the same as in Python.
// Throws UsageError if there is no model of that name (the text suggests the nearest one), or if a size is impossible
// (the text names it).
torch::nn::Sequential make_model(const ModelConfig& config);

struct Size {
  std::int64_t parameters;     // number of elements, including those of frozen parameters
  std::size_t gradient_bytes;  // bytes of the parameters that get a gradient
};

// The size of any module. A tensor that has two names counts once.
Size size_of(const torch::nn::Module& module);

}  // namespace lockstep::model
