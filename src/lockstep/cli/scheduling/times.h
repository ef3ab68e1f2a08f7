// Parses "F,I,W", the times of a pipeline's actions on a command line.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/cli/flags.h"
#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/schedule/simulate.h"

namespace lockstep::cli::scheduling {

// `parse(name, item)` parses one of the three times; `example` is a value that the flag could have. Throws UsageError
// if there are not three.
template <typename Parse>
pipeline::Times parse_times(const std::string& name, const std::string& value, const char* example, Parse parse) {
  const std::vector<std::string> items = split_list(name, value);
  if (items.size() != 3)
    throw UsageError(fmt::format("{} is '{}': {} times, not 3", name, value, items.size()), name + " " + example);
  return {parse(name, items[0]), parse(name, items[1]), parse(name, items[2])};
}

// Parses times such as 10ms,10ms,10ms. The result is in seconds.
inline pipeline::Times parse_durations(const std::string& name, const std::string& value) {
  return parse_times(name, value, "10ms,10ms,10ms", parse_seconds);
}

}  // namespace lockstep::cli::scheduling
