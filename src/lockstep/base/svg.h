// What all SVG pictures share.
#pragma once

#include <string_view>

namespace lockstep {

// An upper bound for the width of a text, in the unit of its font size. The letters of a sans-serif font are narrower
// on average. A picture must be at least as wide as its title, or the title is cut off.
constexpr double text_width(std::string_view text, double font_size) {
  constexpr double kWidthOfALetter = 0.6;
  return kWidthOfALetter * font_size * static_cast<double>(text.size());
}

}  // namespace lockstep
