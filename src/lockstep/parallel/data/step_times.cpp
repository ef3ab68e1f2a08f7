#include "lockstep/parallel/data/step_times.h"

#include <algorithm>

namespace lockstep::parallel {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void StepTimes::end_forward(Clock::time_point began) {
  zero_ = Clock::now();
  statistics_.forward = seconds(zero_ - began);
}

void StepTimes::begin_buckets(const std::vector<GradientBucket>& buckets) {
  statistics_.buckets.assign(buckets.size(), {});
  for (const GradientBucket& bucket : buckets) statistics_.buckets[bucket.index()].bytes = bucket.bytes();
}

void StepTimes::bucket_ready(std::size_t bucket) { statistics_.buckets[bucket].ready = seconds(Clock::now() - zero_); }

Clock::time_point StepTimes::end_backward() {
  const auto now = Clock::now();
  statistics_.backward = seconds(now - zero_);
  return now;
}

void StepTimes::begin_wait() { statistics_.communication = statistics_.overlapped_communication = 0; }

void StepTimes::bucket_reduced(std::size_t bucket, const Work::Times& times) {
  statistics_.buckets[bucket].began = seconds(times.began - zero_);
  statistics_.buckets[bucket].ended = seconds(times.ended - zero_);
  statistics_.communication += seconds(times.ended - times.began);
  statistics_.overlapped_communication +=
      std::max(0.0, std::min(seconds(times.ended - zero_), statistics_.backward) - seconds(times.began - zero_));
}

void StepTimes::end_wait(Clock::time_point waiting_since) {
  statistics_.exposed_communication = seconds(Clock::now() - waiting_since);
  zero_ = Clock::now();
}

}  // namespace lockstep::parallel
