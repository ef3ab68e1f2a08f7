// The trace of a world: each rank records its spans, and at the end rank 0 collects the spans of all ranks on one clock
// and writes them to a file.
//
// If the run failed, no rank waits for another: each rank writes its own spans to a file of its own.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/engine.h"
#include "lockstep/trace.h"

namespace lockstep::comm {

class Tracing {
 public:
  // Rank 0 writes `file`. The other ranks use only its name, and only if the run fails.
  Tracing(Rank rank, std::string file) : recorder_(rank), file_(std::move(file)) {}

  trace::Recorder& recorder() { return recorder_; }

  // Collective over the ranks of the engine. Never throws, because a trace is not worth a failed run.
  // Returns the reason why rank 0 could not write the file, or an empty text.
  std::string collect(Engine& engine) noexcept;
  // Writes only this rank's spans, to FILE.rankN.json.
  void save_alone(Rank rank) noexcept;

 private:
  trace::Recorder recorder_;
  const std::string file_;
};

}  // namespace lockstep::comm
