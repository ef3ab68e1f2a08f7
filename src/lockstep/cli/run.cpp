#include "lockstep/launch/run.h"

#include <fmt/core.h>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/running/options.h"

namespace lockstep::cli {

int run(std::span<const std::string> arguments) {
  const auto options = running::parse(arguments);
  if (options) return launch::run(*options);
  fmt::print("{}", running::help());
  return 0;
}

}  // namespace lockstep::cli
