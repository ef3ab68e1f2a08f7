#include "lockstep/cli/wrap.h"

#include <sstream>

namespace lockstep::cli {

std::string wrap(const std::string& text, const std::string& first, const std::string& rest) {
  constexpr std::size_t kColumns = 80;
  std::string lines, line = first;
  bool has_words = false;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (has_words && line.size() + 1 + word.size() > kColumns) {
      lines += line + "\n";
      line = rest;
      has_words = false;
    }
    line += (has_words ? " " : "") + word;
    has_words = true;
  }
  return lines + line;
}

}  // namespace lockstep::cli
