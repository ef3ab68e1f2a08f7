#include "lockstep/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"

namespace lockstep::train {
namespace {

constexpr auto kBarEvery = 100ms;
constexpr auto kLineEvery = 5s;
constexpr int kBarWidth = 24;
constexpr int kDefaultColumns = 80;
// Clears the rest of the line, and moves the cursor back to its start, so that what others write covers the bar.
constexpr std::string_view kEndBar = "\x1b[K\r";

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n <= 0) return;  // nobody reads it, which is no reason to stop a training run
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

int columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefaultColumns;
}

}  // namespace

Progress::Style Progress::style_for(int fd) {
  const auto terminal = env("TERM");
  if (fd < 0 || ::isatty(fd) == 0 || !terminal || *terminal == "dumb") return Style::plain;
  return env("NO_COLOR") ? Style::bar : Style::colored_bar;
}

Progress::Progress(int fd, Style style, std::int64_t steps) : fd_(fd), style_(style), steps_(steps) {}

Progress::~Progress() { finish(); }

void Progress::say(const std::string& line) {
  if (fd_ < 0) return;
  finish();
  write_all(fd_, line + "\n");
}

void Progress::step(std::optional<double> loss, std::int64_t samples) {
  ++done_;
  samples_ += samples;
  if (fd_ < 0) return;
  const Duration every = style_ == Style::plain ? Duration(kLineEvery) : Duration(kBarEvery);
  if (Clock::now() - shown_ >= every) show(loss);
}

void Progress::finish() {
  if (fd_ < 0 || !bar_is_there_) return;
  write_all(fd_, kEndBar);
  bar_is_there_ = false;
}

std::string Progress::text(std::optional<double> loss, double samples_per_second, int width) const {
  std::string numbers = fmt::format("step {}/{}  {}{:.0f} samples/s", done_, steps_,
                                    loss ? fmt::format("loss {:.6f}  ", *loss) : "", samples_per_second);
  if (const std::string left = time_left(); !left.empty()) numbers += "  " + left;
  if (style_ == Style::plain) return numbers;
  const int room = std::min(kBarWidth, width - 3 - static_cast<int>(numbers.size()));
  if (room < 4) return numbers.substr(0, static_cast<std::size_t>(std::max(0, width - 1)));
  const auto full = steps_ > 0 ? static_cast<int>(std::min(done_, steps_) * room / steps_) : 0;
  std::string done, rest;
  for (int i = 0; i < room; ++i) (i < full ? done : rest) += i < full ? "━" : "─";
  if (style_ == Style::colored_bar) done = "\x1b[32m" + done + "\x1b[0m";
  return done + rest + "  " + numbers;
}

// Estimated from the mean time of the steps so far. Empty before the first step, and when little time is left.
std::string Progress::time_left() const {
  constexpr double kWorthSaying = 10;  // seconds
  const double left = seconds_since(began_) / static_cast<double>(done_) * static_cast<double>(steps_ - done_);
  if (done_ == 0 || left < kWorthSaying) return {};
  if (left < 120) return fmt::format("{:.0f} s left", left);
  return left < 7200 ? fmt::format("{:.0f} min left", left / 60) : fmt::format("{:.1f} h left", left / 3600);
}

void Progress::show(std::optional<double> loss) {
  const double seconds = std::max(seconds_since(shown_), 1e-9);
  const std::string line = text(loss, static_cast<double>(samples_) / seconds, columns_of(fd_));
  if (style_ == Style::plain) {
    write_all(fd_, line + "\n");
  } else {
    write_all(fd_, line + std::string(kEndBar));
    bar_is_there_ = true;
  }
  samples_ = 0;
  shown_ = Clock::now();
}

}  // namespace lockstep::train
