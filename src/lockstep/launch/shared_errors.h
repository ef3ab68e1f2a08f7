// Merges error lines that several ranks print with the same text, so that each is shown once.
//
// A mistake in a program is usually the same on all ranks, and so is its message. Lines that Lockstep's own log marks
// as errors are held back for a moment. Those with the same text become one line that names all their ranks. Only
// one thread may use it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/types.h"

namespace lockstep::launch {

class SharedErrors {
 public:
  static constexpr auto kHeldFor = 300ms;  // how long a line is held back

  // Takes the error lines out of `lines` and returns the others. Each line begins with the rank's `prefix`.
  std::string take(Rank rank, const std::string& prefix, std::string_view lines, Clock::time_point now);
  // The lines that were held back for long enough, or all of them, ready to print. They are then no longer held back.
  std::string due(Clock::time_point now, bool all);
  // When the first held line is due, or Clock::time_point::max() if no line is held.
  Clock::time_point next_due() const;

 private:
  struct Held {
    std::string text;  // the line without its prefix, with its newline
    std::string prefix;
    std::vector<Rank> ranks;
    Clock::time_point since;
  };
  std::vector<Held> held_;  // in the order in which their first rank came
};

}  // namespace lockstep::launch
