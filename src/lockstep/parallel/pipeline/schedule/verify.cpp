#include "lockstep/parallel/pipeline/schedule/verify.h"

#include <fmt/format.h>
#include <algorithm>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/schedule/check.h"
#include "lockstep/parallel/pipeline/schedule/lower.h"

namespace lockstep::pipeline {
namespace {

int peak_of(const std::vector<Timed>& list) {
  int held = 0;
  int peak = 0;
  for (const Timed& timed : list) {
    if (timed.action.kind == Kind::F) peak = std::max(peak, ++held);
    if (timed.action.kind == Kind::B || timed.action.kind == Kind::W) --held;
  }
  return peak;
}

// The time from a rank's first computation to its last action. The wait before the first computation does not count.
double own_time(const std::vector<Timed>& list) {
  const auto computes = [](const Timed& timed) { return !is_message(timed.action.kind); };
  const auto first = std::find_if(list.begin(), list.end(), computes);
  return first == list.end() ? 0 : list.back().end - first->begin;
}

// Times are summed in different orders, so values that should be equal may differ in the last digits.
double without_rounding(double share) { return share < 1e-12 ? 0 : share; }

Prediction predict(Simulation simulation, const StageTimes& times) {
  Prediction prediction;
  prediction.makespan = simulation.makespan;
  const auto ranks = static_cast<double>(simulation.ranks.size());
  double idle = 0;
  double work = 0;
  double longest = 0;
  for (const auto& list : simulation.ranks) {
    double busy = 0;
    // Not end - begin, whose rounding errors would look like idle time.
    for (const Timed& timed : list) busy += times.of(timed.action);
    idle += std::max(0.0, simulation.makespan - busy);
    work += busy;
    longest = std::max(longest, own_time(list));
    prediction.busy.push_back(busy);
    prediction.peak_activations.push_back(peak_of(list));
    prediction.messages += static_cast<int>(
        std::count_if(list.begin(), list.end(), [](const Timed& timed) { return is_send(timed.action.kind); }));
  }
  prediction.bubble = idle / (simulation.makespan * ranks);
  prediction.overlapping_bubble = without_rounding(1 - work / (longest * ranks));
  prediction.timeline = std::move(simulation.ranks);
  return prediction;
}

}  // namespace

Verdict examine(const Schedule& schedule, const StageTimes& times) {
  Verdict verdict;
  verdict.problem = find_fault(schedule);
  if (!verdict.problem.empty()) return verdict;
  verdict.lowered = lower(schedule);
  // A blocking receive waits where it stands, so the order of the given list counts.
  const Schedule& as_it_stands = is_lowered(schedule) ? schedule : verdict.lowered;
  verdict.blocking_cycle = simulate(as_it_stands, times, Sends::blocking).cycle;
  Simulation simulation = simulate(verdict.lowered, times, Sends::asynchronous);
  verdict.cycle = simulation.cycle;
  if (verdict.cycle.empty())
    verdict.prediction = predict(std::move(simulation), times);
  else
    verdict.problem = "deadlock: " + describe(verdict.cycle);
  return verdict;
}

Verdict verify(const Schedule& schedule, const StageTimes& times) {
  Verdict verdict = examine(schedule, times);
  if (!verdict.problem.empty())
    throw UsageError(fmt::format("schedule {} can't run: {}", schedule.name, verdict.problem));
  return verdict;
}

std::string describe(const std::vector<Wait>& cycle) {
  std::string text;
  for (const Wait& wait : cycle) text += fmt::format("{}{}", text.empty() ? "" : "; ", describe(wait));
  return text;
}

}  // namespace lockstep::pipeline
