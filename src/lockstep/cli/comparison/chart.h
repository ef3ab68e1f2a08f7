// A chart of time against size, with logarithmic axes, as an SVG file that needs no other file.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli::comparison {

struct Series {
  std::string name;                               // written at the end of its line
  std::vector<std::pair<double, double>> points;  // bytes and microseconds, both above 0
};

// One plot. Panels stand side by side and have the same axes; a name has the same colour in all of them.
struct Panel {
  std::string title;
  std::vector<Series> series;
};

std::string time_against_size(const std::string& title, const std::vector<Panel>& panels);

}  // namespace lockstep::cli::comparison
