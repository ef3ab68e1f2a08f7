#include "lockstep/cli/guarded.h"

#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "lockstep/cli/with_flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {

int guarded(const std::string& name, const std::function<int()>& body) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write to a file that is too large then fails, as on a full disk
  try {
    const int code = body();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw Error("the output could not be written: is the disk full?");
    return code;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, with_flags(without_backtrace(error.what())));
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, without_backtrace(error.what()));
    return kExitFailed;
  }
}

}  // namespace lockstep::cli
