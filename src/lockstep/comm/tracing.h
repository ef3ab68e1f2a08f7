// The trace of a world: each rank records, and at the end rank 0 collects everyone's spans on one clock and writes
// them.
//
// If the run failed, nobody waits for anybody: each rank writes what it has to a file of its own.
#pragma once

#include <memory>
#include <string>

#include "lockstep/collectives/call.h"
#include "lockstep/trace/recorder.h"

namespace lockstep::comm {

class Tracing {
 public:
  // The file is rank 0's; on other ranks only its name is used, if the run fails.
  Tracing(Rank rank, std::string file) : recorder_(rank), file_(std::move(file)) {}

  trace::Recorder& recorder() { return recorder_; }

  // Collective over the party, with messages of its own tag. Never throws, because a trace is not worth a failed run.
  // Returns why rank 0 could not write the file, or an empty text.
  std::string collect(const collectives::Party& party, Tag tag) noexcept;
  // This rank's part alone, to FILE.rankN.json.
  void save_alone(Rank rank) noexcept;

 private:
  trace::Recorder recorder_;
  const std::string file_;
};

}  // namespace lockstep::comm
