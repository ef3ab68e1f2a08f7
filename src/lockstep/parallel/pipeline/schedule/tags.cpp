#include "lockstep/parallel/pipeline/schedule/tags.h"

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep::pipeline {

void check_tags(const Schedule& schedule) {
  constexpr std::int64_t kTags = 65280;
  const std::int64_t needed = tag_of(schedule, 0, schedule.microbatches, description);
  if (needed > kTags)
    throw UsageError(fmt::format("{} stages and {} microbatches need {} tags, and there are {}", schedule.stages,
                                 schedule.microbatches, needed, kTags),
                     fmt::format("at most {} microbatches", kTags / (kStreams * schedule.stages)));
}

}  // namespace lockstep::pipeline
