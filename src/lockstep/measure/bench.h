// Measures how fast an operation is, in rows: one per size and way of doing it. `lockstep bench` shows them.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/measure/bench_config.h"
#include "lockstep/world.h"

namespace lockstep::measure {

// What rank 0 is told while the rows are measured.
struct Observer {
  // Called once, before the first row, with the document and everything that is known of its rows by then, which is all
  // but their times.
  std::function<void(const nlohmann::json& plan)> begin;
  std::function<void(const nlohmann::json& row)> row;
  // Called before each further size, with that size and the estimated time for all that is left.
  std::function<void(std::size_t bytes, double seconds_left)> waiting;
};

// Collective. Throws UsageError if no row is left to measure. Returns, on rank 0, the document that `lockstep bench --json` prints; docs/command_line.md describes it.
nlohmann::json run_bench(World& world, const BenchConfig& config, const Observer& observer);

}  // namespace lockstep::measure
