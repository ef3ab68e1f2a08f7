// Saves weights of which several ranks have parts, in one file.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/weights.h"

namespace lockstep::weights {

// Collective. Ranks 0 to `parts` - 1 have one part each. Rank 0 writes all of them, one tensor at a time, so it never
// holds the whole model. The file is the same as the one that save_weights() would write for the whole model. `modules`
// are the names of the whole model's modules in their order, used on rank 0; if it is empty, the names are numbers.
void save_parts(const std::string& path, const torch::nn::Module& mine, Communicator& comm, int parts,
                const Metadata& metadata, const std::vector<std::string>& modules = {});

}  // namespace lockstep::weights
