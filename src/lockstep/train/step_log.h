// What a rank remembers of its steps, in memory that does not grow with their number.
//
// Up to kMost steps are all kept. Then every second one is dropped, and from there on only every second step is added;
// when kMost is reached again, every fourth, and so on. All ranks that made the same number of steps keep the same
// ones. The last step is always kept as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/train/strategy.h"

namespace lockstep::train {

class StepLog {
 public:
  static constexpr std::size_t kMost = 8192;

  explicit StepLog(std::size_t most = kMost) : most_(most) {}

  void add(const StepResult& step);

  std::int64_t made() const { return made_; }
  // The distance between two kept steps. If it is 1, all steps are kept.
  std::int64_t every() const { return every_; }
  // The losses of the kept steps and of the last one.
  std::vector<double> losses() const;
  // The kept steps after the first `skipped` steps; at least one if any step was made.
  std::vector<StepResult> after(std::int64_t skipped) const;

 private:
  const std::size_t most_;
  std::int64_t made_ = 0, every_ = 1;
  std::vector<StepResult> kept_;  // kept_[i] is step i * every_
  StepResult last_;
};

// The half of the steps whose times are nearest to the median, as positions in `seconds`, which must not be empty.
// Their mean is as steady as a median. Unlike medians, the means of the parts of a step add up to the mean of the whole
// step.
std::vector<std::size_t> typical(const std::vector<double>& seconds);

}  // namespace lockstep::train
