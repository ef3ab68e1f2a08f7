// The times of a step on this rank, from which DdpStatistics is made. The times of buckets count from the end of
// forward, or from the end of the last reduction if another backward follows without a forward.
//
// The Reducer and its BucketReductions call it, on the thread that runs forward or backward.
#pragma once

#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/data_parallel.h"
#include "lockstep/gradients.h"
#include "lockstep/work.h"

namespace lockstep::parallel {

class StepTimes {
 public:
  void end_forward(Clock::time_point began);
  void begin_buckets(const std::vector<GradientBucket>& buckets);
  void bucket_ready(std::size_t bucket);
  // Returns the time of the call, which is the end of this rank's own backward.
  Clock::time_point end_backward();
  void begin_wait();
  void bucket_reduced(std::size_t bucket, const Work::Times& times);
  // `waiting_since` is when the wait for buckets began.
  void end_wait(Clock::time_point waiting_since);

  // What became of the gradients of the last backward.
  void set_gradients(std::size_t copied_bytes, std::size_t kept) {
    statistics_.copied_bytes = copied_bytes;
    statistics_.kept_gradients = kept;
  }

  void set_overlaps(bool overlaps) { statistics_.overlaps = overlaps; }

  const DdpStatistics& statistics() const { return statistics_; }

 private:
  DdpStatistics statistics_;
  Clock::time_point zero_{};
};

}  // namespace lockstep::parallel
