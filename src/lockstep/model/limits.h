// What sizes a model may have.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::model {

// A UsageError that names the size, unless it is at least 1.
void check_size(const std::string& what, std::int64_t size);

// A UsageError when float weights don't fit this machine's memory. A double, because hostile sizes overflow an integer.
void check_fits(const std::string& what, double parameters);

}  // namespace lockstep::model
