// Saves weights of which several ranks have parts, in one file.
#pragma once

#include <torch/nn/module.h>

#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::train {

// Collective. Ranks 0 to `parts` - 1 have one part each. Rank 0 writes all of them, one tensor at a time, so it never
// holds the whole model. The file is the same as the one that save_weights() would write for the whole model.
void save_parts(const std::string& path, const torch::nn::Module& mine, Communicator& comm, int parts,
                const Metadata& metadata);

}  // namespace lockstep::train
