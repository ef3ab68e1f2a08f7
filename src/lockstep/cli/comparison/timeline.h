// A picture of backward passes, as SVG: one row per gradient or bucket shows when it was ready and when it travelled.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli::comparison {

struct Travel {
  std::string name;  // of a parameter or bucket
  double ready = 0;  // in microseconds, like the other times
  double began = 0;
  double ended = 0;
};

// One backward.
struct Backward {
  std::string title = {};  // empty if there is only one
  std::vector<Travel> travels = {};
  double end = 0;
};

// All of them have the same scale of time.
std::string timeline(const std::string& title, const std::vector<Backward>& all);

}  // namespace lockstep::cli::comparison
