// What a user can choose about a communicator, and where the environment sets it. Rank 0's choices are everyone's.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/collectives/types.h"

namespace lockstep::comm {

struct Options {
  // LOCKSTEP_ALGORITHM: what `automatic` means; itself: the table in choose.cpp.
  Algorithm algorithm = Algorithm::automatic;
  // LOCKSTEP_TIMEOUT: how long a collective may take, in seconds.
  Duration timeout = std::chrono::seconds(600);
  // When a rank that waits says who is late.
  Duration first_warning = std::chrono::seconds(10);
  // LOCKSTEP_DUMP_DIR: where the last collectives are written when one times out or ranks disagree. Empty: the folder
  // lockstep-UID in $TMPDIR, where the newest few files are kept.
  std::string dump_dir;
  // LOCKSTEP_TRACE: the file that rank 0 writes at the end. Empty: no trace.
  std::string trace_file;
  // direct: private buffers pass through segments of this many bytes a rank.
  std::size_t segment_bytes = std::size_t{512} << 10;
  // direct: up to here every rank reads all ranks' buffers, with one synchronisation.
  std::size_t small_bytes = std::size_t{8} << 10;

  // Says in errors which communicator it is: that of a model, for example. At most kLongestName letters; the same on
  // all ranks.
  static constexpr std::size_t kLongestName = 63;
  std::string name;

  static Options from_environment();
};

}  // namespace lockstep::comm
