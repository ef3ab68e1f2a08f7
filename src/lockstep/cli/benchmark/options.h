// The options of `lockstep bench`.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "lockstep/measure/bench_config.h"

namespace lockstep::cli::benchmark {

struct Options : measure::BenchConfig {
  std::optional<int> ranks;  // none means 2, or the world that this process is already part of
  double min_bandwidth = 0;  // GB/s
  bool json = false;
  std::string result;  // file for rank 0's document, if another process shows it
  int rows_fd = -1;    // descriptor for the table's lines, which rank 0 writes as they are measured; -1: none
};

// Throws UsageError if the options make no sense in a world of `ranks`.
void check_world(const Options& options, int ranks);

// `arguments` are those after "bench". Throws UsageError if they are wrong or do not fit together.
Options parse(std::span<const std::string> arguments);
std::string help();

}  // namespace lockstep::cli::benchmark
