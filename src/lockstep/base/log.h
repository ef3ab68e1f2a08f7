// Log messages on stderr. Each message is one line and one write, so that the lines of several ranks never mix.
// LOCKSTEP_LOG sets the level: error, warn (the default), info or debug. Messages of this level and of the levels
// before it are shown.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace lockstep::log {

enum class Level { error, warn, info, debug };

bool enabled(Level level);
void write(Level level, std::string_view text);

template <typename... Args>
void line(Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(level)) write(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::error, format, std::forward<Args>(args)...);
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::warn, format, std::forward<Args>(args)...);
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::info, format, std::forward<Args>(args)...);
}
template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::debug, format, std::forward<Args>(args)...);
}

}  // namespace lockstep::log
