// Measures how fast an operation is. The result has one row for each size and each way of doing the operation.
// `lockstep bench` shows the rows.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/measure/bench_config.h"
#include "lockstep/world.h"

namespace lockstep::measure {

// Callbacks by which rank 0 follows a measurement. All three must be set.
struct Observer {
  // Called once, before the first row, with the document and everything that is known of its rows by then, which is all
  // but their times.
  std::function<void(const nlohmann::json& plan)> begin;
  // Called when a row is complete.
  std::function<void(const nlohmann::json& row)> row;
  // Called before each size but the first, with this size and an estimate of the time until the end.
  std::function<void(std::size_t bytes, double seconds_left)> waiting;
};

// Collective. Returns on rank 0 the document that `lockstep bench --json` prints (docs/command_line.md describes it),
// and null on the other ranks. Throws UsageError if no row is left to measure.
nlohmann::json run_bench(World& world, const BenchConfig& config, const Observer& observer);

}  // namespace lockstep::measure
