// Measures the rows of a bench, on a rank.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/cli/benchmark/options.h"
#include "lockstep/world.h"

namespace lockstep::cli::benchmark {

// What rank 0 is told while the rows are measured.
struct Observer {
  // Called once, before the first row, with the document and everything that is known of its rows by then, which is all
  // but their times.
  std::function<void(const nlohmann::json& plan)> begin;
  std::function<void(const nlohmann::json& row)> row;
  // Called before each further size, with that size and the estimated time for all that is left.
  std::function<void(std::size_t bytes, double seconds_left)> waiting;
};

// Collective. Returns, on rank 0, the document that `lockstep bench --json` prints; docs/command_line.md describes it.
nlohmann::json measure(World& world, const Options& options, const Observer& observer);

}  // namespace lockstep::cli::benchmark
