#include "lockstep/base/error.h"

#include <fmt/format.h>
#include <system_error>

#include "lockstep/base/log.h"

namespace lockstep {

SystemError::SystemError(int code, const std::string& message, const std::string& hint)
    : Error(message + ": " + std::generic_category().message(code), hint), code_(code) {}

std::exception_ptr reworded(const PeerDied& error, const std::string& text) {
  if (dynamic_cast<const PeerUnreachable*>(&error) != nullptr)
    return std::make_exception_ptr(PeerUnreachable(error.peer(), text));
  return std::make_exception_ptr(PeerDied(error.peer(), text));
}

std::string without_backtrace(std::string text) {
  const auto backtrace = text.find("\nException raised from ");
  if (backtrace == std::string::npos || log::enabled(log::Level::debug)) return text;
  text.erase(backtrace);
  return text;
}

std::string describe_bytes(std::size_t bytes) {
  if (bytes == 1) return "1 byte";
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  const char* unit = "KiB";
  double value = static_cast<double>(bytes) / 1024;
  for (const char* next : {"MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {} ({} bytes)", value, unit, bytes);
}

}  // namespace lockstep
