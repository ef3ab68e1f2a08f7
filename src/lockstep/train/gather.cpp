#include "lockstep/train/gather.h"

#include <algorithm>
#include <array>

#include "lockstep/base/quantile.h"
#include "lockstep/train/result.h"
#include "lockstep/train/utilisation.h"

namespace lockstep::train {
namespace {

constexpr std::size_t kDigestLetters = 64;

// The figures that each rank sends, in this order. Those from kForward to kOther are means over typical steps.
enum Figure : std::size_t {
  kP50,
  kP99,
  kForward,
  kBackward,
  kCommunication,
  kOverlapped,
  kExposed,
  kOptimizer,
  kOther,
  kPeak,
  kPss,
  kFigures,
};
using Figures = std::array<double, kFigures>;

// Collective. All ranks choose the same typical steps, by the time of the slowest rank in each step.
Figures figures_of(const RankReport& mine, const std::vector<StepResult>& timed, Communicator& comm) {
  Figures figures{};
  figures[kPeak] = static_cast<double>(mine.peak);
  figures[kPss] = static_cast<double>(mine.pss);
  std::vector<double> seconds;
  for (const StepResult& step : timed) seconds.push_back(step.seconds);
  figures[kP50] = median(seconds);
  figures[kP99] = quantile(seconds, 0.99);
  comm.all_reduce(std::span(seconds), ReduceOp::max);
  if (seconds.empty()) return figures;
  const std::vector<std::size_t> chosen = typical(seconds);
  for (const std::size_t i : chosen) {
    const Phases& p = timed[i].phases;
    figures[kForward] += p.forward;
    figures[kBackward] += p.backward;
    figures[kCommunication] += p.communication;
    figures[kOverlapped] += p.overlapped;
    figures[kExposed] += p.exposed_communication;
    figures[kOptimizer] += p.optimizer;
    figures[kOther] += std::max(0.0, timed[i].seconds - p.forward - p.backward - p.exposed_communication - p.optimizer);
  }
  for (std::size_t figure = kForward; figure <= kOther; ++figure) figures[figure] /= static_cast<double>(chosen.size());
  return figures;
}

Shares shares_of(std::span<const double> figures) {
  const double compute = figures[kForward] + figures[kBackward] + figures[kOptimizer];
  const double whole = std::max(compute + figures[kExposed] + figures[kOther], 1e-12);
  return {.compute = compute / whole, .communication = figures[kExposed] / whole, .other = figures[kOther] / whole};
}

}  // namespace

Result gather_results(const RankReport& mine, const TrainingConfig& config, Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  Result result;
  result.config = config;
  result.steps = mine.steps.made();
  result.losses_every = mine.steps.every();
  result.losses = mine.steps.losses();
  comm.reduce(std::span(result.losses), ReduceOp::sum, 0);

  const std::int64_t untimed = config.untimed(result.steps);
  const auto timed = static_cast<std::size_t>(result.steps - untimed);
  const Figures figures = figures_of(mine, mine.steps.after(untimed), comm);
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
  result.phases = {.forward = mean(kForward),
                   .backward = mean(kBackward),
                   .communication = mean(kCommunication),
                   .overlapped = mean(kOverlapped),
                   .exposed_communication = mean(kExposed),
                   .optimizer = mean(kOptimizer),
                   .other = mean(kOther)};
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
      result.shares.push_back(shares_of(std::span(all).subspan(rank * kFigures, kFigures)));
  return result;
}

}  // namespace lockstep::train
