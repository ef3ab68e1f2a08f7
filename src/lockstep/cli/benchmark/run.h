// The measuring itself, on a rank.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/cli/benchmark/options.h"
#include "lockstep/transport/world.h"

namespace lockstep::cli::benchmark {

// What rank 0 hears while the rows are measured.
struct Observer {
  // Once, before the first row: the document with all that is known of its rows by then, which is no times.
  std::function<void(const nlohmann::json& plan)> begin;
  std::function<void(const nlohmann::json& row)> row;
  // Now and then between rows, when there is more to come: which size is next, and how long the rest will take.
  std::function<void(std::size_t bytes, double seconds_left)> waiting;
};

// Collective. On rank 0 the document that `lockstep bench --json` prints; docs/command_line.md has its shape.
nlohmann::json measure(World& world, const Options& options, const Observer& observer);

}  // namespace lockstep::cli::benchmark
