// How far a run is: a bar with the loss, samples per second and the time that remains on a terminal, and a plain line
// now and then elsewhere.
// Rank 0 has one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"

namespace lockstep::train {

// Writes to `fd`, which it does not own. One thread.
class Progress {
 public:
  enum class Style { plain, bar, colored_bar };
  // A bar when `fd` is a terminal that can show one; without color where NO_COLOR is set.
  static Style style_for(int fd);

  // `fd` -1: silent.
  Progress(int fd, Style style, std::int64_t steps);
  ~Progress();
  Progress(const Progress&) = delete;

  // A line for people, above the bar.
  void say(const std::string& line);
  // After a step. Costs a clock read, unless it is time to show something. Without a loss (emulated compute) none is
  // shown.
  void step(std::optional<double> loss, std::int64_t samples);
  // Removes the bar.
  void finish();

  // What is shown, without what moves the cursor.
  std::string text(std::optional<double> loss, double samples_per_second, int width) const;

 private:
  void show(std::optional<double> loss);
  std::string time_left() const;  // empty when it is short

  const int fd_;
  const Style style_;
  const std::int64_t steps_;
  std::int64_t done_ = 0;
  std::int64_t samples_ = 0;  // since the last time something was shown
  bool bar_is_there_ = false;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point shown_ = began_;
};

}  // namespace lockstep::train
