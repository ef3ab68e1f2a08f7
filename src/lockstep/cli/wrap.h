// Text for terminals of 80 columns.
#pragma once

#include <string>

namespace lockstep::cli {

// `text`, broken between words into lines of at most 80 characters. The first line begins with `first`, the others with
// `rest`. A word that is longer than a line stays whole. There is no newline at the end.
std::string wrap(const std::string& text, const std::string& first, const std::string& rest);

}  // namespace lockstep::cli
