// Shows how far a run is: on a terminal, a bar with the loss, samples per second and the time that remains; elsewhere,
// a plain line now and then. Only rank 0 shows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"

namespace lockstep::train {

// Writes to `fd`, which it does not own. Only one thread may use it.
class Progress {
 public:
  enum class Style { plain, bar, colored_bar };
  // A bar if `fd` is a terminal that can show one, without color if NO_COLOR is set; otherwise plain lines.
  static Style style_for(int fd);

  // An `fd` of -1 means silent.
  Progress(int fd, Style style, std::int64_t steps);
  ~Progress();
  Progress(const Progress&) = delete;

  // Prints a line above the bar.
  void say(const std::string& line);
  // Must be called after each step. Costs one read of the clock, unless it is time to show something. Without a loss
  // (emulated compute), none is shown.
  void step(std::optional<double> loss, std::int64_t samples);
  // Removes the bar.
  void finish();

  // The text that is shown, without the characters that move the cursor.
  std::string text(std::optional<double> loss, double samples_per_second, int width) const;

 private:
  void show(std::optional<double> loss);
  std::string time_left() const;  // empty if little time is left

  const int fd_;
  const Style style_;
  const std::int64_t steps_;
  std::int64_t done_ = 0;
  std::int64_t samples_ = 0;  // samples since something was last shown
  bool bar_is_there_ = false;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point shown_ = began_;
};

}  // namespace lockstep::train
