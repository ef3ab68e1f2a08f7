// The arguments of `lockstep run`, with torchrun's spellings.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "lockstep/launch/options.h"

namespace lockstep::launch {

// `arguments` are those after "run". Flags come first; the first word that is not one, or all after "--", is the
// program. Nothing when --help was asked for. Throws UsageError.
std::optional<Options> parse_command_line(std::span<const std::string> arguments);

std::string help();

}  // namespace lockstep::launch
