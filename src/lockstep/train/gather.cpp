#include "lockstep/train/gather.h"

#include <algorithm>
#include <array>

#include "lockstep/train/utilisation.h"

namespace lockstep::train {
namespace {

constexpr std::size_t kDigestLetters = 64;

// The figures of a rank that travel, in this order.
enum Figure : std::size_t {
  kP50,
  kP99,
  kForward,
  kBackward,
  kCommunication,
  kExposed,
  kOptimizer,
  kPeak,
  kPss,
  kFigures,
};
using Figures = std::array<double, kFigures>;

Figures figures_of(const Local& mine, std::size_t skipped) {
  const auto values = [&](auto&& of) {
    std::vector<double> found;
    for (std::size_t i = skipped; i < mine.steps.size(); ++i) found.push_back(of(mine.steps[i]));
    return found;
  };
  const auto median = [&](double Phases::*phase) {
    return quantile(values([&](const StepResult& step) { return step.phases.*phase; }), 0.5);
  };
  const std::vector<double> seconds = values([](const StepResult& step) { return step.seconds; });
  Figures figures{};
  figures[kP50] = quantile(seconds, 0.5);
  figures[kP99] = quantile(seconds, 0.99);
  figures[kForward] = median(&Phases::forward);
  figures[kBackward] = median(&Phases::backward);
  figures[kCommunication] = median(&Phases::communication);
  figures[kExposed] = median(&Phases::exposed_communication);
  figures[kOptimizer] = median(&Phases::optimizer);
  figures[kPeak] = static_cast<double>(mine.peak);
  figures[kPss] = static_cast<double>(mine.pss);
  return figures;
}

// Medians don't add up to the median of the whole: they may be a little more.
Shares shares_of(std::span<const double> figures, double step) {
  const double compute = figures[kForward] + figures[kBackward] + figures[kOptimizer];
  const double whole = std::max({step, compute + figures[kExposed], 1e-12});
  return {compute / whole, figures[kExposed] / whole, std::max(0.0, whole - compute - figures[kExposed]) / whole};
}

}  // namespace

Result gather_results(const Local& mine, const TrainingConfig& config, Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  Result result;
  result.config = config;
  for (const StepResult& step : mine.steps) result.losses.push_back(step.loss);
  comm.reduce(std::span(result.losses), ReduceOp::sum, 0);

  const auto untimed = static_cast<std::size_t>(config.untimed(static_cast<std::int64_t>(mine.steps.size())));
  const std::size_t timed = mine.steps.size() - untimed;
  const Figures figures = figures_of(mine, untimed);
  std::vector<double> all(ranks * kFigures);
  comm.gather(std::span<const double>(figures), std::span(all), 0);
  const std::vector<std::uint8_t> digest(mine.digest.begin(), mine.digest.end());
  std::vector<std::uint8_t> digests(ranks * kDigestLetters);
  comm.gather(std::span(digest), std::span(digests), 0);
  if (comm.rank() != 0) {
    if (mine.pipeline != nullptr) gather_pipeline(*mine.pipeline, timed, comm, result);
    return result;
  }

  const auto column = [&](Figure figure) {
    std::vector<double> values;
    for (std::size_t rank = 0; rank < ranks; ++rank) values.push_back(all[rank * kFigures + figure]);
    return values;
  };
  const auto slowest = [&](Figure figure) {
    const auto values = column(figure);
    return *std::max_element(values.begin(), values.end());
  };
  const auto mean = [&](Figure figure) {
    double sum = 0;
    for (const double value : column(figure)) sum += value;
    return sum / static_cast<double>(ranks);
  };
  result.step_p50 = slowest(kP50);
  result.step_p99 = slowest(kP99);
  result.phases = {mean(kForward), mean(kBackward), mean(kCommunication), mean(kExposed), mean(kOptimizer), 0};
  for (const double bytes : column(kPeak)) result.peak_bytes.push_back(static_cast<std::size_t>(bytes));
  if (config.report_memory)
    for (const double bytes : column(kPss)) result.pss_bytes.push_back(static_cast<std::size_t>(bytes));
  for (std::size_t rank = 0; rank < ranks; ++rank)
    result.digests.emplace_back(digests.begin() + static_cast<std::ptrdiff_t>(rank * kDigestLetters),
                                digests.begin() + static_cast<std::ptrdiff_t>((rank + 1) * kDigestLetters));
  if (mine.pipeline != nullptr)
    gather_pipeline(*mine.pipeline, timed, comm, result);
  else
    for (std::size_t rank = 0; rank < ranks; ++rank)
      result.shares.push_back(shares_of(std::span(all).subspan(rank * kFigures, kFigures), result.step_p50));
  return result;
}

}  // namespace lockstep::train
