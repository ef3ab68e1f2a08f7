// Training runs that a comparison starts, each in processes of its own.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::cli::comparison {

// Starts `ranks` ranks of a command and returns the document that rank 0 made. Throws Error if a rank fails, and
// UsageError with the text of the run if the command can't be run as it is.
nlohmann::json training_run(int ranks, const std::vector<std::string>& command);

// One row made from the rows of several rounds: each floating-point number, also in nested objects, is the median of
// its values; everything else is that of the first row.
nlohmann::json medians(const std::vector<nlohmann::json>& rounds);

// Tells on stderr, before each run of a comparison, which run it is and how long the rest will take.
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
