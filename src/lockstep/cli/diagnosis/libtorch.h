// Which libtorch `lockstep train` uses, whether it loads, and which BLAS it uses for matrix products.
#pragma once

#include <vector>

#include "lockstep/cli/diagnosis/finding.h"

namespace lockstep::cli::diagnosis {

// The findings about libtorch and BLAS.
std::vector<Finding> libtorch();

}  // namespace lockstep::cli::diagnosis
