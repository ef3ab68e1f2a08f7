// Training runs that a comparison starts, each in processes of its own.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::cli::comparison {

// Starts `ranks` ranks of a command and gives the document that rank 0 made. Throws Error if a rank fails, and
// UsageError with the run's own words if the command can't be run as it is.
nlohmann::json training_run(int ranks, const std::vector<std::string>& command);

// One row from the rows of several rounds: each floating-point number is the median of its values, also in objects
// inside it, and everything else is the first row's.
nlohmann::json medians(const std::vector<nlohmann::json>& rounds);

// Says on stderr, before each run of a comparison, which one it is and how long the rest will take.
class Countdown {
 public:
  explicit Countdown(int runs) : runs_(runs) {}
  void next(const std::string& what);

 private:
  const int runs_;
  int begun_ = 0;
  const Clock::time_point began_ = Clock::now();
};

}  // namespace lockstep::cli::comparison
