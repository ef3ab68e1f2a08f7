// What `lockstep run` was asked to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::launch {

// A set of a rank's streams, in torchrun's numbers.
enum Streams : unsigned { kNeither = 0, kStdout = 1, kStderr = 2, kBoth = 3 };

struct Options {
  int ranks = 1;
  std::vector<std::string> command;  // the program, then its arguments

  // For the program's own use; Lockstep's ranks meet in the launcher's store.
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free one

  std::string log_dir;          // empty: no files
  unsigned to_file = kNeither;  // needs log_dir
  unsigned to_console = kBoth;

  // How long ranks get to end by themselves, and again between SIGTERM and SIGKILL.
  Duration grace = 2s;
  // How long the job may go on when all ranks that are left are stopped (SIGSTOP) and others have ended: nobody will
  // wake them.
  Duration stopped_patience = 600s;
  // How long until some rank must have reached the store. None: the program need not use Lockstep.
  std::optional<Duration> must_meet_within = {};
};

}  // namespace lockstep::launch
