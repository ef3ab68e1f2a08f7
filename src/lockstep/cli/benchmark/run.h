// The measuring itself, on a rank.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/cli/benchmark/options.h"
#include "lockstep/transport/world.h"

namespace lockstep::cli::benchmark {

// Collective. On rank 0 the document that `lockstep bench --json` prints; docs/design.md has its shape.
nlohmann::json measure(World& world, const Options& options);

}  // namespace lockstep::cli::benchmark
