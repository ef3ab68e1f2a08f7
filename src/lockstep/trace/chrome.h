// Chrome trace JSON, as ui.perfetto.dev and chrome://tracing open it.
//
// A rank is a process (pid = rank); each of its threads is a track, and below them works in flight are spread over
// tracks "in flight 1", "in flight 2", ... so that they never overlap on one. Times begin at 0.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "lockstep/trace/trace.h"

namespace lockstep::trace {

// offsets[i] is added to the times of ranks[i]; no offsets at all: the ranks share a clock.
void write_chrome_trace(std::ostream& out, const std::vector<RankTrace>& ranks,
                        const std::vector<ClockOffset>& offsets = {});
// To a file, which appears whole or not at all. Throws SystemError when it can't be written.
void write_chrome_trace(const std::string& file, const std::vector<RankTrace>& ranks,
                        const std::vector<ClockOffset>& offsets = {});

}  // namespace lockstep::trace
