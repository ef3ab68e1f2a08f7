// lockstep-torch: what needs libtorch. `lockstep` starts it; people do not.
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/cli/comparison/gradients.h"
#include "lockstep/cli/training/rank.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::vector<std::string> words(argv + 1, argv + std::max(argc, 1));
  std::signal(SIGPIPE, SIG_IGN);  // who no longer reads our progress is no reason to stop
  const std::string verb = words.empty() ? "" : words[0];
  try {
    int code = kExitOk;
    if (verb == "train")
      code = cli::training::run_rank(std::span(words).subspan(1));
    else if (verb == "compare" && words.size() > 1)
      code = cli::comparison::compare_gradients_rank(words[1], std::span(words).subspan(2));
    else
      throw UsageError("lockstep-torch is started by lockstep", "lockstep train");
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw Error("the output could not be written: is the disk full?");
    return code;
  } catch (const Error& error) {
    fmt::print(stderr, "lockstep {}: {}\n", verb, error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep {}: {}\n", verb, error.what());
    return kExitFailed;
  }
}
