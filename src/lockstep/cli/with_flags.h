// Translates the library's error messages for the command line: names of settings become flags.
#pragma once

#include <string>

namespace lockstep::cli {

// The library writes the name of a setting in backquotes, as it is called in C++: `batch_per_rank` 4. Returns the text
// with the flags of the command instead: --batch-per-rank 4.
std::string with_flags(const std::string& text);

}  // namespace lockstep::cli
