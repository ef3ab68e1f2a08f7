// "F,I,W" on a command line.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/cli/flags.h"
#include "lockstep/parallel/pipeline/simulate.h"

namespace lockstep::cli::scheduling {

// `parse(name, item)` reads one of them; `example` is what the flag could be.
template <typename Parse>
pipeline::Times parse_times(const std::string& name, const std::string& value, const char* example, Parse parse) {
  const std::vector<std::string> items = split_list(name, value);
  if (items.size() != 3)
    throw UsageError(fmt::format("{} is '{}': {} times, not 3", name, value, items.size()), name + " " + example);
  return {parse(name, items[0]), parse(name, items[1]), parse(name, items[2])};
}

// As 10ms,10ms,10ms; gives seconds.
inline pipeline::Times parse_durations(const std::string& name, const std::string& value) {
  return parse_times(name, value, "10ms,10ms,10ms", parse_seconds);
}

}  // namespace lockstep::cli::scheduling
