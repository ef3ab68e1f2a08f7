// A rank of `lockstep train`.
#pragma once

#include <span>
#include <string>

namespace lockstep::cli::training {

// `arguments` as for `lockstep train`. Gives the exit code.
int run_rank(std::span<const std::string> arguments);

}  // namespace lockstep::cli::training
