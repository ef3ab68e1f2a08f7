// Environment variables with a type and a range. A bad value is a UsageError that names the variable.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/clock.h"

namespace lockstep {

// The variable's text; empty counts as not set.
std::optional<std::string> env(const char* name);
std::optional<std::int64_t> env_int(const char* name, std::int64_t min, std::int64_t max);
// Seconds, fractions allowed, at least a millisecond.
Duration env_seconds(const char* name, Duration fallback);
// One of `choices`; the first is what an unset variable means.
std::string env_choice(const char* name, std::initializer_list<std::string_view> choices);

// Throws UsageError if a variable is set whose name is nearly, but not quite, that of one of ours. Variables that are
// not like any of ours may belong to the program.
void check_variables();

// Parsing for flags and variables alike; `what` is named in the error.
std::int64_t parse_int(std::string_view what, std::string_view text, std::int64_t min, std::int64_t max);
// "64", "4K", "1M", "2G": K, M and G are powers of 1024.
std::size_t parse_bytes(std::string_view what, std::string_view text);

// This host's name, for people.
std::string hostname();

}  // namespace lockstep
