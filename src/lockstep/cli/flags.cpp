#include "lockstep/cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "lockstep/base/clock.h"
#include "lockstep/base/suggest.h"
#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

std::string with_underscores(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

const Flag& find_flag(std::span<const Flag> flags, std::string_view verb, const std::string& name) {
  std::vector<std::string> known;
  for (const Flag& flag : flags)
    for (const std::string& spelling : flag.names) {
      if (with_underscores(spelling) == with_underscores(name)) return flag;
      if (!flag.summary.empty()) known.push_back(spelling);
    }
  const auto near = name.starts_with("--") ? closest(name, known) : std::nullopt;
  throw UsageError(fmt::format("{} is not a flag of lockstep {}", name, verb),
                   near.value_or(fmt::format("lockstep {} --help", verb)));
}

bool is_flag(const std::string& word) { return word.size() >= 2 && word[0] == '-'; }

// Reads the flag at `arguments[next]` and its value, and moves `next` behind them.
template <typename OnFlag>
void read_one(std::span<const Flag> flags, std::string_view verb, std::span<const std::string> arguments,
              std::size_t& next, const OnFlag& on_flag) {
  const std::string& word = arguments[next++];
  const auto equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const Flag& flag = find_flag(flags, verb, name);
  std::string value;
  if (flag.value == nullptr) {
    if (equals != std::string::npos) throw UsageError(fmt::format("{} takes no value", name), name);
  } else if (equals != std::string::npos) {
    value = word.substr(equals + 1);
  } else if (next < arguments.size() && arguments[next] != "--") {
    value = arguments[next++];
  } else {
    throw UsageError(fmt::format("{} needs a value", name), fmt::format("{} {}", name, flag.value));
  }
  on_flag(flag, name, value);
}

// Calls `on_flag` for every flag among `arguments`, and returns the other words.
template <typename OnFlag>
std::vector<std::string> walk(std::span<const Flag> flags, std::string_view verb,
                              std::span<const std::string> arguments, const OnFlag& on_flag) {
  std::vector<std::string> words;
  for (std::size_t next = 0; next < arguments.size();) {
    if (is_flag(arguments[next]))
      read_one(flags, verb, arguments, next, on_flag);
    else
      words.push_back(arguments[next++]);
  }
  return words;
}

void apply(const Flag& flag, const std::string& name, const std::string& value) { flag.apply(name, value); }

}  // namespace

std::vector<std::string> read_flags(std::span<const Flag> flags, std::string_view verb,
                                    std::span<const std::string> arguments) {
  return walk(flags, verb, arguments, apply);
}

std::span<const std::string> read_leading_flags(std::span<const Flag> flags, std::string_view verb,
                                                std::span<const std::string> arguments) {
  std::size_t next = 0;
  while (next < arguments.size() && is_flag(arguments[next])) {
    if (arguments[next] == "--") return arguments.subspan(next + 1);
    read_one(flags, verb, arguments, next, apply);
  }
  return arguments.subspan(next);
}

std::set<std::string> given_flags(std::span<const Flag> flags, std::string_view verb,
                                  std::span<const std::string> arguments) {
  std::set<std::string> given;
  walk(flags, verb, arguments,
       [&](const Flag& flag, const std::string&, const std::string&) { given.insert(flag.names.front()); });
  return given;
}

bool asks_for_help(std::span<const std::string> arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

std::string describe_flags(std::span<const Flag> flags, std::size_t column) {
  std::string text;
  for (const Flag& flag : flags) {
    if (flag.summary.empty()) continue;
    std::string left = fmt::format("{}", fmt::join(flag.names, ", "));
    if (flag.value != nullptr) left += fmt::format(" {}", flag.value);
    text += fmt::format("  {:<{}}{}{}\n", left, column, left.size() < column ? "" : "\n" + std::string(column + 2, ' '),
                        flag.summary);
  }
  return text;
}

std::vector<std::string> split_list(const std::string& name, const std::string& value) {
  std::vector<std::string> items;
  std::istringstream text(value + ",");
  for (std::string item; std::getline(text, item, ',');) {
    if (item.empty()) throw UsageError(fmt::format("{} is '{}', with an empty item", name, value));
    items.push_back(item);
  }
  return items;
}

double parse_number(const std::string& name, const std::string& value, double least) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !std::isfinite(number) || number < least)
    throw UsageError(fmt::format("{} is '{}', not a number from {} on", name, value, least));
  return number;
}

double parse_seconds(const std::string& name, const std::string& value) {
  constexpr double kHour = 3600;
  const std::size_t unit = value.find_first_not_of("0123456789.");
  const std::string word = unit == std::string::npos ? "" : value.substr(unit);
  const double scale = word == "s" ? 1 : word == "ms" ? 1e-3 : word == "us" ? 1e-6 : 0;
  if (unit == 0 || scale == 0)
    throw UsageError(fmt::format("{} is '{}', which is not a time", name, value), "10ms, 1.5s or 250us");
  const double seconds = scale * parse_number(name, value.substr(0, unit), 0);
  if (!(seconds > 0) || seconds > kHour)
    throw UsageError(fmt::format("{} is '{}'", name, value), "more than 0, and at most an hour");
  return seconds;
}

}  // namespace lockstep::cli
