#include "lockstep/train/utilisation.h"

#include <algorithm>
#include <map>

#include "lockstep/base/quantile.h"
#include "lockstep/parallel/pipeline/schedule/verify.h"
#include "lockstep/train/pipeline_config.h"
#include "lockstep/train/result.h"

namespace lockstep::train {
namespace {

using pipeline::Kind;
using pipeline::Timeline;

double seconds_of(Clock::time_point time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }
Clock::time_point point_of(double seconds) {
  return Clock::time_point(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

// A step as it travels. Only times are sent, because all ranks know the lists of actions.
constexpr std::size_t kHead = 6;  // began, ended, averaging, optimizer, reducing, seconds
std::size_t words_of(const pipeline::Schedule& lowered) {
  std::size_t most = 0;
  for (const auto& list : lowered.actions) most = std::max(most, list.size());
  return kHead + 2 * most;
}

// Packs the last `count` steps.
std::vector<double> pack(const PipelineRecord& mine, std::size_t count) {
  const std::size_t words = words_of(mine.lowered);
  std::vector<double> packed;
  for (std::size_t i = mine.steps.size() - count; i < mine.steps.size(); ++i) {
    const auto& [timeline, averaging, optimizer, reducing, seconds] = mine.steps[i];
    const std::size_t end = packed.size() + words;
    packed.insert(packed.end(),
                  {seconds_of(timeline.began), seconds_of(timeline.ended), averaging, optimizer, reducing, seconds});
    for (const auto& moment : timeline.moments)
      packed.insert(packed.end(), {seconds_of(moment.began), seconds_of(moment.ended)});
    packed.resize(end);
  }
  return packed;
}

PipelineRecord::Step unpack(std::span<const double> words, const std::vector<pipeline::Action>& list) {
  PipelineRecord::Step step;
  step.timeline.began = point_of(words[0]);
  step.timeline.ended = point_of(words[1]);
  step.averaging = words[2];
  step.optimizer = words[3];
  step.reducing = words[4];
  step.seconds = words[5];
  for (std::size_t i = 0; i < list.size(); ++i)
    step.timeline.moments.push_back({list[i], point_of(words[kHead + 2 * i]), point_of(words[kHead + 2 * i + 1])});
  return step;
}

// The median times of each stage's actions.
class ActionTimes {
 public:
  void add(const Timeline& timeline) {
    for (const auto& [action, began, ended] : timeline.moments)
      if (!pipeline::is_message(action.kind))
        seconds_[{action.stage, action.kind}].push_back(seconds_of(ended) - seconds_of(began));
  }
  std::vector<pipeline::Times> of_stages(int stages) const {
    std::vector<pipeline::Times> times;
    for (int stage = 0; stage < stages; ++stage) {
      const double whole = median(stage, Kind::B);
      pipeline::Times one{median(stage, Kind::F), median(stage, Kind::I), median(stage, Kind::W)};
      if (whole > 0) one.input = one.weight = whole / 2;
      times.push_back(one);
    }
    return times;
  }

 private:
  double median(int stage, Kind kind) const {
    const auto found = seconds_.find({stage, kind});
    return found == seconds_.end() ? 0 : lockstep::median(found->second);
  }

  std::map<std::pair<int, Kind>, std::vector<double>> seconds_;
};

// The seconds that one rank spent, summed over its steps.
struct Spent {
  double forward = 0, backward = 0, optimizer = 0, exposed = 0, bubble = 0, other = 0;
};

// The sums over all steps of all ranks.
struct Sums {
  std::vector<Spent> ranks;             // including optimizer and averaging
  std::vector<double> makespans, idle;  // of each step of each pipeline, without optimizer and averaging
  double overlapped = 0;                // seconds of reductions that ran during the drain
  ActionTimes times;
};

double forward_of(const Timeline& timeline) {
  double seconds = 0;
  for (const auto& [action, began, ended] : timeline.moments)
    if (action.kind == Kind::F) seconds += seconds_of(ended) - seconds_of(began);
  return seconds;
}

// One step of one pipeline, whose first rank is `first`.
void add_step(Sums& sums, std::size_t first, std::span<const PipelineRecord::Step> step) {
  std::vector<Timeline> timelines;
  for (const PipelineRecord::Step& rank : step) timelines.push_back(rank.timeline);
  const auto used = pipeline::utilisation(timelines);
  double busy = 0, makespan = 0;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const auto& [compute, communication, bubble] = used[i];
    const double forward = forward_of(step[i].timeline);
    const double listed = seconds_of(step[i].timeline.ended) - seconds_of(step[i].timeline.began);
    Spent& spent = sums.ranks[first + i];
    spent.forward += forward;
    spent.backward += compute - forward;
    spent.optimizer += step[i].optimizer;
    spent.exposed += communication + step[i].averaging;
    spent.bubble += bubble;
    spent.other += std::max(0.0, step[i].seconds - listed - step[i].averaging - step[i].optimizer);
    sums.overlapped += std::max(0.0, step[i].reducing - step[i].averaging);
    sums.times.add(step[i].timeline);
    busy += compute;
    makespan = std::max(makespan, compute + communication + bubble);
  }
  sums.makespans.push_back(makespan);
  sums.idle.push_back(1 - busy / (static_cast<double>(step.size()) * makespan));
}

void fill_shares(Result& result, const Sums& sums, std::size_t steps) {
  const auto count = static_cast<double>(sums.ranks.size() * steps);
  Phases phases;
  for (const Spent& spent : sums.ranks) {
    const double compute = spent.forward + spent.backward + spent.optimizer;
    const double whole = std::max(compute + spent.exposed + spent.bubble + spent.other, 1e-12);
    result.shares.push_back({compute / whole, spent.exposed / whole, spent.bubble / whole, spent.other / whole});
    phases.forward += spent.forward / count;
    phases.backward += spent.backward / count;
    phases.optimizer += spent.optimizer / count;
    phases.exposed_communication += spent.exposed / count;
    phases.bubble += spent.bubble / count;
    phases.other += spent.other / count;
  }
  phases.communication = phases.exposed_communication + sums.overlapped / count;
  result.phases = phases;
}

PipelineResult pipeline_result(const pipeline::Schedule& lowered, const Sums& sums,
                               const std::optional<pipeline::Times>& emulated) {
  PipelineResult p;
  p.schedule = lowered.name;
  p.all_stages = lowered.stages;
  p.times = sums.times.of_stages(lowered.stages);
  const pipeline::StageTimes times =
      emulated ? pipeline::StageTimes(emulated_times(*emulated, lowered)) : pipeline::StageTimes(p.times);
  const pipeline::Prediction prediction = pipeline::verify(lowered, times).prediction;
  p.messages = prediction.messages;
  p.bubble_predicted = prediction.bubble;
  p.seconds_predicted = prediction.makespan;
  p.bubble_measured = median(sums.idle);
  p.seconds_measured = median(sums.makespans);
  return p;
}

}  // namespace

void gather_pipeline(const PipelineRecord& mine, std::size_t timed, Communicator& comm, Result& result) {
  const pipeline::Schedule& lowered = mine.lowered;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto stages = static_cast<std::size_t>(lowered.ranks);  // ranks of one pipeline
  const std::size_t steps = std::min(mine.steps.size(), timed);
  const std::size_t words = words_of(lowered);
  const std::vector<double> packed = pack(mine, steps);
  std::vector<double> all(ranks * packed.size());
  comm.gather(std::span<const double>(packed), std::span(all), 0);
  const std::vector<std::int64_t> peak{mine.peak_activations};
  std::vector<std::int64_t> peaks(ranks);
  comm.gather(std::span<const std::int64_t>(peak), std::span(peaks), 0);
  if (comm.rank() != 0 || steps == 0) return;

  Sums sums{.ranks = std::vector<Spent>(ranks), .makespans = {}, .idle = {}, .times = {}};
  for (std::size_t step = 0; step < steps; ++step)
    for (std::size_t first = 0; first < ranks; first += stages) {
      std::vector<PipelineRecord::Step> one;
      for (std::size_t i = 0; i < stages; ++i)
        one.push_back(unpack(std::span(all).subspan(((first + i) * steps + step) * words, words), lowered.actions[i]));
      add_step(sums, first, one);
    }
  fill_shares(result, sums, steps);
  result.pipeline = pipeline_result(lowered, sums, result.config.pipeline.emulate);
  result.pipeline->peak_activations.assign(peaks.begin(), peaks.end());
}

}  // namespace lockstep::train
