// Finds out from the ends of the ranks whose fault a failure was, and writes the report. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/types.h"

namespace lockstep::launch {

// How one rank ended.
struct RankEnd {
  Rank rank = 0;
  int pid = 0;
  int status = 0;        // as wait(2) gives it
  int round = 0;         // the launcher's look that found the end; ends that one look found have the same number
  int signalled = 0;     // the last signal that the launcher sent it before it ended; 0 for none
  bool stopped = false;  // it was stopped (SIGSTOP) when the launcher sent its first signal
  std::string error;     // its own failure, as it published it
  std::string waiting;   // what it waited for when a peer failed, as it published it
  std::vector<std::string> last_words;  // its last lines on stderr
};

// A status in words: "exit code 3", "signal 9 (Killed)".
std::string describe_status(int status);
// The code that a shell would show: the exit code, or 128 + the signal.
int code_of(int status);

// The rank that failed first by itself, or nullptr if no rank did. The job returns its code. A rank that was waiting
// for a peer and has no error of its own is a victim: it comes last, even if it ended before the rank that it waited
// for. Otherwise the earlier end comes first. Among ends that one look found, an end by a signal comes first, and then
// the lowest rank.
const RankEnd* first_failure(std::span<const RankEnd> ends);

// The rank whose fault that was. Nearly always it is the rank that failed first. But if that rank timed out, it is the
// rank that was found stopped, if there is one. And if only victims failed, it is the rank that left last with exit
// code 0 before them, because they still needed it.
const RankEnd* first_cause(std::span<const RankEnd> ends);

// What the report is made from.
struct Failure {
  std::string host;
  std::vector<RankEnd> ends;  // the ends of all ranks, in rank order
  std::string log_dir;        // the folder of the log files; empty if there is none
  bool colour = false;
};

// The block of text that ends a failed run, without a final newline. There must be a first cause.
std::string failure_report(const Failure& failure);

// Ranks in words: "rank 3", "ranks 0, 2-5". `ranks` must be sorted and not empty.
std::string name_ranks(std::span<const Rank> ranks);

}  // namespace lockstep::launch
