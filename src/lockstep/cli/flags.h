// A table of flags and the loop that reads them: what the verbs that measure share.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct Flag {
  std::vector<std::string> names;
  const char* value;    // what stands for it in the help; nullptr: takes none
  std::string summary;  // empty: not for people, so not in the help
  std::function<void(const std::string& name, const std::string& value)> apply;
};

// Applies the flags among `arguments` in their order and gives back the other words. Dashes and underscores are the
// same in a long flag, and so are "--flag value" and "--flag=value". A UsageError names the nearest flag.
std::vector<std::string> read_flags(std::span<const Flag> flags, std::string_view verb,
                                    std::span<const std::string> arguments);

// The first name of each flag among `arguments`, for flags that exclude each other or mean nothing without another.
std::set<std::string> given_flags(std::span<const Flag> flags, std::string_view verb,
                                  std::span<const std::string> arguments);

// True when --help or -h is among them.
bool asks_for_help(std::span<const std::string> arguments);

// The flags as lines of a help text.
std::string describe_flags(std::span<const Flag> flags);

// "a,b,c"; an empty item is a UsageError that names the flag.
std::vector<std::string> split_list(const std::string& name, const std::string& value);

// A finite number of at least `least`, or a UsageError that names the flag.
double parse_number(const std::string& name, const std::string& value, double least);

// "10ms", "1.5s" or "250us", in seconds; above 0 and at most an hour, or a UsageError that names the flag.
double parse_seconds(const std::string& name, const std::string& value);

}  // namespace lockstep::cli
