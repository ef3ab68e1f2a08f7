// The options of a communicator, and the environment variables that set them. Options that must be the same on all
// ranks (algorithm, segment_bytes, small_bytes, and whether there is a trace) are taken from the first rank.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/collectives/types.h"

namespace lockstep::comm {

struct Options {
  // LOCKSTEP_ALGORITHM: the algorithm that `automatic` stands for in a call. If this is `automatic` as well, the table
  // in choose.cpp decides.
  Algorithm algorithm = Algorithm::automatic;
  // LOCKSTEP_TIMEOUT: how long a collective may wait for its peers; the variable is in seconds.
  Duration timeout = std::chrono::seconds(600);
  // How long a rank waits before it logs which ranks are late.
  Duration first_warning = std::chrono::seconds(10);
  // LOCKSTEP_DUMP_DIR: the folder to which a rank writes its last collectives if one times out or if ranks disagree.
  // Empty means the folder lockstep-UID in $TMPDIR, where only the newest files are kept.
  std::string dump_dir;
  // LOCKSTEP_TRACE: the file that rank 0 writes at the end. Empty means no trace.
  std::string trace_file;
  // For `direct`: the bytes of a segment. Private buffers pass through two segments per rank.
  std::size_t segment_bytes = std::size_t{512} << 10;
  // For `direct`: up to this size every rank reads the buffers of all ranks, and one synchronisation is enough.
  std::size_t small_bytes = std::size_t{8} << 10;

  // Tells in errors which communicator it is, for example that of a model. It has at most kLongestName bytes, and must
  // be the same on all ranks.
  static constexpr std::size_t kLongestName = 63;
  std::string name;

  static Options from_environment();
};

}  // namespace lockstep::comm
