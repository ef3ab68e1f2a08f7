// Limits on the sizes of a model.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::model {

// Throws UsageError if `size` is below 1. The text names it as `what`.
void check_size(const std::string& what, std::int64_t size);

// Throws UsageError if a list of this many layers is not that of a real model.
void check_depth(std::int64_t depth);

// Throws UsageError if `parameters` float weights do not fit in this machine's memory. The count is a double, because
// hostile sizes would overflow an integer.
void check_fits(const std::string& what, double parameters);

}  // namespace lockstep::model
