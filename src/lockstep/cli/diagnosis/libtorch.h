// Which libtorch `lockstep train` uses, whether it loads, and who multiplies its matrices.
#pragma once

#include <vector>

#include "lockstep/cli/diagnosis/finding.h"

namespace lockstep::cli::diagnosis {

// libtorch and BLAS.
std::vector<Finding> libtorch();

}  // namespace lockstep::cli::diagnosis
