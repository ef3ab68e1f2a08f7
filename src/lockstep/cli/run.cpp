#include "lockstep/launch/run.h"

#include <fmt/core.h>

#include "lockstep/cli/commands.h"
#include "lockstep/launch/command_line.h"

namespace lockstep::cli {

int run(std::span<const std::string> arguments) {
  const auto options = launch::parse_command_line(arguments);
  if (options) return launch::run(*options);
  fmt::print("{}", launch::help());
  return 0;
}

}  // namespace lockstep::cli
