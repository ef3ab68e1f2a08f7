// Finds a program before anything is started, so that a typing error is one line and not one line a rank.
#pragma once

#include <string>

namespace lockstep::launch {

// The path to execute for `name`: itself when it has a slash, else the first executable file of that name in
// `search_path` (PATH's text). Throws UsageError that says what is wrong and what to type instead.
std::string find_program(const std::string& name, const std::string& search_path);

}  // namespace lockstep::launch
