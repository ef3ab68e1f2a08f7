// The verbs of `lockstep`. Each has a small file of its own, and a row in the table of main.cpp.
#pragma once

#include <span>
#include <string>

namespace lockstep::cli {

// Each function takes the arguments after its verb and returns the exit code. An Error that it throws is printed as one
// line.
int run(std::span<const std::string> arguments);
int doctor(std::span<const std::string> arguments);
int train(std::span<const std::string> arguments);
int bench(std::span<const std::string> arguments);
int compare(std::span<const std::string> arguments);
int plan(std::span<const std::string> arguments);
int schedule(std::span<const std::string> arguments);
int completion(std::span<const std::string> arguments);

}  // namespace lockstep::cli
