// Errors that several ranks print alike, shown once.
//
// A mistake in a program is usually the same on all ranks, and so is its message. The lines that Lockstep's own log
// marks as errors are held back for a moment; those with the same text become one line that names all their ranks. Used
// by one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/types.h"

namespace lockstep::launch {

class SharedErrors {
 public:
  static constexpr auto kHeldFor = 300ms;

  // Takes the error lines out of `lines`, which each begin with the rank's `prefix`, and returns the others.
  std::string take(Rank rank, const std::string& prefix, std::string_view lines, Clock::time_point now);
  // The lines that were held for long enough, or all of them, ready to print.
  std::string due(Clock::time_point now, bool all);
  bool empty() const { return held_.empty(); }

 private:
  struct Held {
    std::string text;  // without prefix, with its newline
    std::string prefix;
    std::vector<Rank> ranks;
    Clock::time_point since;
  };
  std::vector<Held> held_;  // in order of their first rank's coming
};

}  // namespace lockstep::launch
