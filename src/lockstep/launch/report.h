// From how the ranks ended to whose fault it was and what to tell people. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/base/types.h"

namespace lockstep::launch {

// How one rank ended.
struct RankEnd {
  Rank rank = 0;
  int pid = 0;
  int status = 0;                       // as wait(2) gives it
  int round = 0;                        // counts the launcher's looks; ends found by one look share it
  int signalled = 0;                    // the last signal that the launcher had sent it before; 0: none
  bool stopped = false;                 // it was stopped (SIGSTOP) when the launcher sent the first
  std::string error;                    // what it published as its own failure
  std::string waiting;                  // what it published as what it waited for when a peer failed
  std::vector<std::string> last_words;  // on stderr
};

// "exit code 3", "signal 9 (Killed)"
std::string describe_status(int status);
// What a shell would show: the exit code, or 128 + the signal.
int code_of(int status);

// The rank that failed first by itself, whose code the job returns; nullptr when none did. A rank that was waiting for
// a peer, and has no error of its own, is a victim and comes last, even when it ended before the one that it waited
// for. Then the earlier end counts, and of those found by the same look, one by a signal.
const RankEnd* first_failure(std::span<const RankEnd> ends);

// Whose fault that was: nearly always the same rank. But when it timed out, it is the one that was found stopped, if
// any; and when only victims failed, the rank that last left with exit code 0 before them: they still needed it.
const RankEnd* first_cause(std::span<const RankEnd> ends);

struct Failure {
  std::string host;
  std::vector<RankEnd> ends;  // of all ranks, in order
  std::string log_dir;        // empty: none
  bool colour = false;
};

// The block that ends a failed run, without a newline at its end. There must be a first cause.
std::string failure_report(const Failure& failure);

// "rank 3", "ranks 0, 2-5"; `ranks` in order and not empty.
std::string name_ranks(std::span<const Rank> ranks);

}  // namespace lockstep::launch
