// A rank of `lockstep train`.
#pragma once

#include <span>
#include <string>

namespace lockstep::cli::training {

// Runs the rank with the arguments of `lockstep train`, and returns the exit code.
int run_rank(std::span<const std::string> arguments);

}  // namespace lockstep::cli::training
