// A file's or a user's own words in a line of ours.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Short, and nothing in it that would break the line or move a terminal's cursor.
inline std::string one_line(std::string_view text) {
  constexpr std::size_t kMost = 100;
  std::string shown(text.substr(0, kMost));
  for (char& letter : shown)
    if (letter < ' ' || letter > '~') letter = '?';
  return text.size() > kMost ? shown + "..." : shown;
}

// The whole text of another process: lines stay lines, and nothing else in it can move a terminal's cursor. Bytes above
// 127 stay, for they are letters of UTF-8.
inline std::string printable(std::string text) {
  constexpr char kDelete = 127;
  for (char& letter : text)
    if ((letter >= 0 && letter < ' ' && letter != '\n' && letter != '\t') || letter == kDelete) letter = '?';
  return text;
}

}  // namespace lockstep
