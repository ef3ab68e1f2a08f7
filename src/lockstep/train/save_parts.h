// Weights that several ranks have parts of, in one file.
#pragma once

#include <torch/nn/module.h>

#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::train {

// Collective. Ranks 0 to `parts` - 1 have a part each; rank 0 writes them all, one tensor at a time: it never holds the
// whole. The file is the one that save_weights would write of the whole.
void save_parts(const std::string& path, const torch::nn::Module& mine, Communicator& comm, int parts,
                const Metadata& metadata);

}  // namespace lockstep::train
