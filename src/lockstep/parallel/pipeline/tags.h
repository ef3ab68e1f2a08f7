// The tags of a pipeline's messages: one for each stage that sends, microbatch and stream.
#pragma once

#include <cstdint>

#include "lockstep/parallel/pipeline/schedule.h"

namespace lockstep::pipeline {

enum Stream : std::int64_t { description, activation, gradient, kStreams };

inline std::int64_t tag_of(const Schedule& schedule, int sender, int microbatch, Stream stream) {
  return (std::int64_t{microbatch} * schedule.stages + sender) * kStreams + stream;
}

// A UsageError when they have more values than a communicator has tags.
void check_tags(const Schedule& schedule);

}  // namespace lockstep::pipeline
