// What `lockstep run` was asked to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::launch {

// A set of a rank's streams, numbered as in torchrun.
enum Streams : unsigned { kNeither = 0, kStdout = 1, kStderr = 2, kBoth = 3 };

struct Options {
  int ranks = 1;
  std::vector<std::string> command;  // the program, then its arguments

  // For the program's own use. The ranks of Lockstep meet in the launcher's store.
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0 for a free port

  std::string log_dir;          // the folder for log files; empty for none
  unsigned to_file = kNeither;  // the streams that are written to files; needs log_dir
  unsigned to_console = kBoth;

  // How long ranks get to end by themselves, and then once more between SIGTERM and SIGKILL.
  Duration grace = 2s;
  // How long the job may go on if some ranks have ended and all others are stopped (SIGSTOP). Nobody is expected to
  // continue them.
  Duration stopped_patience = 600s;
  // The time within which some rank must reach the store. If it is not set, the program need not use Lockstep.
  std::optional<Duration> must_meet_within = {};
};

}  // namespace lockstep::launch
