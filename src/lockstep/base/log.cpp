#include "lockstep/base/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace lockstep::log {
namespace {

Level threshold_from_environment() {
  const char* value = std::getenv("LOCKSTEP_LOG");
  const std::string_view text = value ? value : "";
  if (text.empty() || text == "warn") return Level::warn;
  if (text == "error") return Level::error;
  if (text == "info") return Level::info;
  if (text == "debug") return Level::debug;
  const std::string complaint =
      fmt::format("lockstep: warn: LOCKSTEP_LOG={} is not a level; try: error, warn, info or debug\n", text);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, complaint.data(), complaint.size());
  return Level::warn;
}

const char* name(Level level) {
  switch (level) {
    case Level::error:
      return "error";
    case Level::warn:
      return "warn";
    case Level::info:
      return "info";
    case Level::debug:
      return "debug";
  }
  return "?";
}

}  // namespace

bool enabled(Level level) {
  static const Level threshold = threshold_from_environment();
  return level <= threshold;
}

void write(Level level, std::string_view text) {
  const std::string line = fmt::format("lockstep: {}: {}\n", name(level), text);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace lockstep::log
