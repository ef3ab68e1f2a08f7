// A table of flags, and the functions that read flags with it. All verbs use them.
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
  const char* value;    // name of the value in the help; nullptr if the flag takes none
  std::string summary;  // empty for internal flags, which the help does not show
  std::function<void(const std::string& name, const std::string& value)> apply;
};

// Applies the flags among `arguments` in their order and returns the other words. In a long flag, dashes and
// underscores are the same; so are "--flag value" and "--flag=value". Throws UsageError if a flag is unknown (the hint
// names the nearest one), lacks its value, or has a value and takes none.
std::vector<std::string> read_flags(std::span<const Flag> flags, std::string_view verb,
                                    std::span<const std::string> arguments);

// Applies the flags at the start of `arguments`. They end at the first word that is not a flag, or at "--", which is
// skipped. Returns the words after them, which are not Lockstep's.
std::span<const std::string> read_leading_flags(std::span<const Flag> flags, std::string_view verb,
                                                std::span<const std::string> arguments);

// The first name of each flag among `arguments`. Used for flags that exclude each other, or that mean nothing without
// another one.
std::set<std::string> given_flags(std::span<const Flag> flags, std::string_view verb,
                                  std::span<const std::string> arguments);

// True if --help or -h is among them.
bool asks_for_help(std::span<const std::string> arguments);

// The flags as lines of a help text. The summaries are aligned `column` characters after the start of the flags.
std::string describe_flags(std::span<const Flag> flags, std::size_t column = 28);

// The items of "a,b,c". Throws UsageError, which names the flag, if an item is empty.
std::vector<std::string> split_list(const std::string& name, const std::string& value);

// A finite number that is at least `least`. Throws UsageError, which names the flag, for anything else.
double parse_number(const std::string& name, const std::string& value, double least);

// The seconds of "10ms", "1.5s" or "250us". Throws UsageError, which names the flag, unless they are above 0 and at
// most an hour.
double parse_seconds(const std::string& name, const std::string& value);

}  // namespace lockstep::cli
