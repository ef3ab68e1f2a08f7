// How a program of ours ends: with a code, and with one line for people when something is thrown.
#pragma once

#include <functional>
#include <string>

namespace lockstep::cli {

// Runs `body` and gives its code, or that of what it throws, after a line on stderr that begins with `name`. Output
// that could not be written is an error, too.
int guarded(const std::string& name, const std::function<int()>& body);

}  // namespace lockstep::cli
