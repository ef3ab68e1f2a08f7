// Time, and the deadlines that limit every wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/types.h"

namespace lockstep {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;

// The point in time at which a call gives up. There is no "never": the longest deadline is one year away.
class Deadline {
 public:
  static Deadline in(Duration duration) {
    const Duration bounded = std::min<Duration>(duration, std::chrono::hours(24 * 365));
    return Deadline(Clock::now() + bounded, bounded);
  }
  // The earlier of this deadline and one that is `duration` away.
  Deadline sooner(Duration duration) const {
    const Deadline other = in(duration);
    return other.at_ < at_ ? other : *this;
  }

  bool passed() const { return Clock::now() >= at_; }
  Duration left() const { return std::max<Duration>(at_ - Clock::now(), Duration::zero()); }
  // The whole time that the caller allowed, in seconds, for messages.
  double seconds() const { return std::chrono::duration<double>(allowed_).count(); }
  Clock::time_point at() const { return at_; }
  // The time that is left, in milliseconds as poll(2) takes it, but at most `cap`. It is rounded up: a time below one
  // millisecond must not become 0, because then the caller would spin.
  int poll_ms(std::chrono::milliseconds cap = std::chrono::hours(1)) const {
    return static_cast<int>(std::min(std::chrono::ceil<std::chrono::milliseconds>(left()), cap).count());
  }

 private:
  Deadline(Clock::time_point at, Duration allowed) : at_(at), allowed_(allowed) {}
  Clock::time_point at_;
  Duration allowed_;
};

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A stopwatch: each call returns the seconds since the previous call, and the first call those since construction.
class Stopwatch {
 public:
  double operator()() {
    const auto now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  Clock::time_point last_ = Clock::now();
};

}  // namespace lockstep
