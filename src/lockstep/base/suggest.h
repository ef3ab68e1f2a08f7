// For hints of the kind "did you mean": the choice that is nearest to a mistyped word.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// The choice with the fewest letters to insert, remove or replace, or nothing if all choices are too far from `word`.
std::optional<std::string> closest(std::string_view word, std::span<const std::string> choices);

}  // namespace lockstep
