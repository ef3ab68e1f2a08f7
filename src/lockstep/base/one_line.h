// Makes text from files, users and other processes safe to show in a message.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// The text for use within a line: cut to 100 bytes, and with '?' for everything that is not printable ASCII. So it can
// neither break the line nor move a terminal's cursor.
inline std::string one_line(std::string_view text) {
  constexpr std::size_t kMost = 100;
  std::string shown(text.substr(0, kMost));
  for (char& letter : shown)
    if (letter < ' ' || letter > '~') letter = '?';
  return text.size() > kMost ? shown + "..." : shown;
}

// The whole text, for example from another process, with '?' for all control characters except newline and tab. So it
// cannot move a terminal's cursor. Bytes above 127 stay, because they are letters in UTF-8.
inline std::string printable(std::string text) {
  constexpr char kDelete = 127;
  for (char& letter : text)
    if ((letter >= 0 && letter < ' ' && letter != '\n' && letter != '\t') || letter == kDelete) letter = '?';
  return text;
}

}  // namespace lockstep
