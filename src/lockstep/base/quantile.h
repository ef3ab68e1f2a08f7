// The quantile of measured values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

// The p-quantile, with p from 0 to 1: the value at the nearest place in sorted order, never one between two values.
// Returns 0 if there are no values.
inline double quantile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  const auto place = std::lround(p * static_cast<double>(values.size() - 1));
  const auto found = values.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(values.begin(), found, values.end());
  return *found;
}

inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace lockstep
