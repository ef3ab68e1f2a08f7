// A picture of one backward with hooks, as SVG: one row per gradient shows when it was ready and when it travelled.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli::comparison {

struct Travel {
  std::string parameter;
  double ready = 0;  // in microseconds, like the other times
  double began = 0;
  double ended = 0;
};

std::string timeline(const std::string& title, const std::vector<Travel>& travels, double backward_end);

}  // namespace lockstep::cli::comparison
