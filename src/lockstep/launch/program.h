// Finds a program before anything is started, so that a typing error gives one line, and not one line per rank.
#pragma once

#include <string>

namespace lockstep::launch {

// The path to execute for `name`. It is `name` itself if that contains a slash, otherwise the first executable file of
// that name in `search_path` (the text of PATH). Throws a UsageError that says what is wrong and what to type instead.
std::string find_program(const std::string& name, const std::string& search_path);

}  // namespace lockstep::launch
