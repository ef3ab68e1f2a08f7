// Writes Chrome trace JSON, which ui.perfetto.dev and chrome://tracing can open.
//
// Each rank is a process (pid = rank), and each of its threads is a track. Below the threads, works in flight are
// spread over the tracks "in flight 1", "in flight 2" and so on, so that no two of them overlap on one track. Times
// begin at 0.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "lockstep/trace/rank_trace.h"

namespace lockstep::trace {

// offsets[i] is added to the times of ranks[i]. Without offsets, the ranks must share a clock. Throws UsageError if the
// number of offsets is wrong.
void write_chrome_trace(std::ostream& out, const std::vector<RankTrace>& ranks,
                        const std::vector<ClockOffset>& offsets = {});
// The same, to a file that appears complete or not at all. Throws SystemError if the file cannot be written.
void write_chrome_trace(const std::string& file, const std::vector<RankTrace>& ranks,
                        const std::vector<ClockOffset>& offsets = {});

}  // namespace lockstep::trace
