// What the machine allows: its load, limits, ports, namespaces and data sets.
#pragma once

#include <vector>

#include "lockstep/cli/diagnosis/finding.h"

namespace lockstep::cli::diagnosis {

// How busy the machine is now. `per_core` is the number of processes that want to run, per allowed core.
Finding load_finding(double per_core);

std::vector<Finding> machine();

}  // namespace lockstep::cli::diagnosis
