// Text for terminals of 80 columns.
#pragma once

#include <string>

namespace lockstep::cli {

// `text` broken between words into lines of at most 80 characters. The first begins with `first`, the others with
// `rest`. A word that is longer stays whole. No newline at the end.
std::string wrap(const std::string& text, const std::string& first, const std::string& rest);

}  // namespace lockstep::cli
