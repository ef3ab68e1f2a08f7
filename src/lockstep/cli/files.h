// Files that a verb writes for its user.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "lockstep/base/atomic_file.h"

namespace lockstep::cli {

// Prints one line on stderr, so that stdout carries nothing but the result.
inline void say_written(const std::string& path) { fmt::print(stderr, "wrote {}\n", path); }

inline void write_and_say(const std::string& path, std::string_view text) {
  write_file(path, text);
  say_written(path);
}

}  // namespace lockstep::cli
