// The options of `lockstep run`, which are spelled as in torchrun.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "lockstep/launch/options.h"

namespace lockstep::cli::running {

// `arguments` are those after "run". Flags come first. The program is the first word that is not a flag, or the first
// word after "--"; its own arguments follow. Returns nothing if --help was given. Throws UsageError if the arguments
// are wrong.
std::optional<launch::Options> parse(std::span<const std::string> arguments);
std::string help();

}  // namespace lockstep::cli::running
