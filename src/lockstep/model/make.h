// From a configuration to a model, and how large a model is.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/model/config.h"

namespace lockstep::model {

// Weights come from torch's default generator: torch::manual_seed before this, and they are Python's. A UsageError
// names the nearest model when there is none of that name, and the size that can't be.
torch::nn::Sequential make_model(const ModelConfig& config);

struct Size {
  std::int64_t parameters;     // numbers, frozen ones too
  std::size_t gradient_bytes;  // of the parameters that get a gradient
};

// Of any module. A tensor that stands under two names counts once.
Size size_of(const torch::nn::Module& module);

}  // namespace lockstep::model
