// How our programs end: with an exit code, and with one line for the user if something was thrown.
#pragma once

#include <functional>
#include <string>

namespace lockstep::cli {

// Runs `body` and returns its exit code. If it throws, prints a line on stderr that begins with `name`, and returns the
// exit code of the exception. Output that could not be written is an error, too.
int guarded(const std::string& name, const std::function<int()>& body);

}  // namespace lockstep::cli
