// The names of an enum's values, as one table: for flags, environment variables, messages and help texts.
//
//   enum class Color : std::uint8_t { red, green };
//   inline constexpr auto kColors =
//       named_values<Color>("color", {{Color::red, "red"}, {Color::green, "green", "the color of grass"}});
//
//   kColors.name_of(Color::red)   is "red"
//   kColors.parse("green")        is Color::green
//   kColors.parse("gren")         throws UsageError: there is no color 'gren'; try: green
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

template <typename Enum>
struct NamedValue {
  Enum value;
  const char* name;
  const char* help = "";  // what the value means, for a help text; may be empty
};

// Throws the UsageError that says that there is no `what` of this name. Its hint is the nearest of the names, or all of
// them if none is near.
[[noreturn]] void refuse_name(const char* what, std::string_view name, std::span<const std::string> names);

template <typename Enum, std::size_t N>
class NamedValues {
 public:
  // `what` is the word for such a value in messages. The rows must have the order of the enumerators, which begin at 0.
  // A table in another order does not compile.
  consteval NamedValues(const char* what, const NamedValue<Enum> (&rows)[N]) : what_(what), rows_(std::to_array(rows)) {
    for (std::size_t i = 0; i < N; ++i)
      if (static_cast<std::size_t>(rows_[i].value) != i) throw "the rows are not in the order of the enumerators";
  }

  // Throws std::out_of_range if `value` is not an enumerator.
  constexpr const char* name_of(Enum value) const { return rows_.at(static_cast<std::size_t>(value)).name; }

  constexpr std::optional<Enum> find(std::string_view name) const {
    for (const NamedValue<Enum>& row : rows_)
      if (row.name == name) return row.value;
    return std::nullopt;
  }

  // Throws UsageError if no value has this name; the text suggests the nearest one.
  Enum parse(std::string_view name) const {
    if (const std::optional<Enum> found = find(name)) return *found;
    refuse_name(what_, name, names());
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const NamedValue<Enum>& row : rows_) all.emplace_back(row.name);
    return all;
  }

  constexpr std::size_t size() const { return N; }
  constexpr auto begin() const { return rows_.begin(); }
  constexpr auto end() const { return rows_.end(); }

 private:
  const char* what_;
  std::array<NamedValue<Enum>, N> rows_;
};

template <typename Enum, std::size_t N>
consteval NamedValues<Enum, N> named_values(const char* what, const NamedValue<Enum> (&rows)[N]) {
  return {what, rows};
}

}  // namespace lockstep
