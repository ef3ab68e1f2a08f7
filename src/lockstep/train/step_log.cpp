#include "lockstep/train/step_log.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/quantile.h"

namespace lockstep::train {

void StepLog::add(const StepResult& step) {
  last_ = step;
  if (made_++ % every_ != 0) return;
  if (kept_.size() == most_) {
    for (std::size_t i = 0; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
    kept_.resize((kept_.size() + 1) / 2);
    every_ *= 2;
    if ((made_ - 1) % every_ != 0) return;
  }
  kept_.push_back(step);
}

std::vector<double> StepLog::losses() const {
  std::vector<double> losses;
  for (const StepResult& step : kept_) losses.push_back(step.loss);
  if (made_ > 0 && (made_ - 1) % every_ != 0) losses.push_back(last_.loss);
  return losses;
}

std::vector<StepResult> StepLog::after(std::int64_t skipped) const {
  const auto first = std::min(static_cast<std::size_t>((skipped + every_ - 1) / every_), kept_.size());
  std::vector<StepResult> found(kept_.begin() + static_cast<std::ptrdiff_t>(first), kept_.end());
  if (found.empty() && made_ > 0) found.push_back(last_);
  return found;
}

std::vector<std::size_t> typical(const std::vector<double>& seconds) {
  const double middle = median(seconds);
  std::vector<std::size_t> order(seconds.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(seconds[a] - middle) < std::abs(seconds[b] - middle);
  });
  order.resize((seconds.size() + 1) / 2);
  return order;
}

}  // namespace lockstep::train
