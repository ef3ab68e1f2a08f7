// Environment variables with a type and a range. A bad value throws a UsageError that names the variable.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep {

// The value of a variable. A variable that is set to the empty text counts as not set.
std::optional<std::string> env(const char* name);
std::optional<std::int64_t> env_int(const char* name, std::int64_t min, std::int64_t max);
// A time in seconds, with fractions, from 0.001 to 1e7; `fallback` if the variable is not set.
Duration env_seconds(const char* name, Duration fallback);
// One of `choices`, or the first of them if the variable is not set.
std::string env_choice(const char* name, const std::vector<std::string>& choices);

// Throws UsageError if a variable is set whose name begins with LOCKSTEP_ and is nearly, but not exactly, the name of
// one of ours. Names that resemble none of ours are accepted, because they may belong to the program.
void check_variables();

// Parsers for flags and variables. `what` is the flag or variable that the UsageError names.
std::int64_t parse_int(std::string_view what, std::string_view text, std::int64_t min, std::int64_t max);
// A number of bytes such as "64", "4K", "1M" or "2G". K, M and G are powers of 1024.
std::size_t parse_bytes(std::string_view what, std::string_view text);
// The opposite, for tables: "64K", "1.5M", "100".
std::string brief_bytes(double bytes);

// The name of this host, for messages.
std::string hostname();

}  // namespace lockstep
