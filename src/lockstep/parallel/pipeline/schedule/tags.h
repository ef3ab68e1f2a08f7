// The tags of a pipeline's messages: one for each sending stage, microbatch and stream.
#pragma once

#include <cstdint>

#include "lockstep/schedule.h"

namespace lockstep::pipeline {

enum Stream : std::int64_t { description, activation, gradient, kStreams };

inline std::int64_t tag_of(const Schedule& schedule, int sender, int microbatch, Stream stream) {
  return (std::int64_t{microbatch} * schedule.stages + sender) * kStreams + stream;
}

// Throws UsageError if the schedule needs more tags than a communicator has.
void check_tags(const Schedule& schedule);

}  // namespace lockstep::pipeline
