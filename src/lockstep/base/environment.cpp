#include "lockstep/base/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <vector>

#include "lockstep/base/suggest.h"
#include "lockstep/error.h"

namespace lockstep {

namespace {

constexpr std::string_view kOurs = "LOCKSTEP_";

// All variables of the library, of its programs and of its build. A test compares this list with the sources.
const std::vector<std::string> kVariables = {
    "LOCKSTEP_ALGORITHM",   "LOCKSTEP_DATA",
    "LOCKSTEP_DUMP_DIR",    "LOCKSTEP_GENERATION",
    "LOCKSTEP_INSECURE",    "LOCKSTEP_JOB",
    "LOCKSTEP_LARGE_TESTS", "LOCKSTEP_LAUNCHER",
    "LOCKSTEP_LOG",         "LOCKSTEP_SECRET",
    "LOCKSTEP_SECRET_FILE", "LOCKSTEP_DOOR_TESTS",
    "LOCKSTEP_SHM_COPY",    "LOCKSTEP_RENDEZVOUS_TIMEOUT",
    "LOCKSTEP_SHM_DIR",     "LOCKSTEP_STORE",
    "LOCKSTEP_TCP_ADDRESS", "LOCKSTEP_TIMEOUT",
    "LOCKSTEP_TORCH",       "LOCKSTEP_TRACE",
    "LOCKSTEP_TRANSPORT",
};

}  // namespace

void check_variables() {
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with(kOurs) || std::find(kVariables.begin(), kVariables.end(), name) != kVariables.end()) continue;
    // Names are compared without their common prefix, because the prefix would make any two names look alike.
    std::vector<std::string> endings;
    for (const std::string& known : kVariables) endings.push_back(known.substr(kOurs.size()));
    if (const auto near = closest(name.substr(kOurs.size()), endings))
      throw UsageError(fmt::format("the variable {} is set, and Lockstep has none of that name", name),
                       fmt::format("{}{}", kOurs, *near));
  }
}

std::optional<std::string> env(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::int64_t parse_int(std::string_view what, std::string_view text, std::int64_t min, std::int64_t max) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max)
    throw UsageError(fmt::format("{} is '{}', not a whole number from {} to {}", what, text, min, max));
  return value;
}

std::optional<std::int64_t> env_int(const char* name, std::int64_t min, std::int64_t max) {
  const auto text = env(name);
  if (!text) return std::nullopt;
  return parse_int(name, *text, min, max);
}

Duration env_seconds(const char* name, Duration fallback) {
  const auto text = env(name);
  if (!text) return fallback;
  char* end = nullptr;
  const double seconds = std::strtod(text->c_str(), &end);
  if (end != text->c_str() + text->size() || !(seconds >= 1e-3) || seconds > 1e7)
    throw UsageError(fmt::format("{} is '{}', not a number of seconds from 0.001 to 1e7", name, *text));
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::string env_choice(const char* name, const std::vector<std::string>& choices) {
  const auto text = env(name);
  if (!text) return choices.front();
  if (std::find(choices.begin(), choices.end(), *text) == choices.end())
    throw UsageError(fmt::format("{} is '{}'", name, *text), fmt::format("one of {}", fmt::join(choices, ", ")));
  return *text;
}

std::size_t parse_bytes(std::string_view what, std::string_view text) {
  std::string_view digits = text;
  int shift = 0;
  if (!digits.empty()) {
    switch (digits.back()) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
    if (shift != 0) digits.remove_suffix(1);
  }
  const auto number = parse_int(what, digits, 0, std::numeric_limits<std::int64_t>::max() >> shift);
  return static_cast<std::size_t>(number) << shift;
}

std::string brief_bytes(double bytes) {
  const char* units[] = {"", "K", "M", "G"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit < 3) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g}{}", bytes, units[unit]);
}

std::string hostname() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace lockstep
