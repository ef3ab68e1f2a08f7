// Ranks with different numbers of batches. A rank that has no more batches takes part in the others' collectives with
// zeros.
//
//   rank 0   step  step  step  step  step
//   rank 1   step  step  step   0     0      joined: before each event of the active ranks, all ranks exchange a word,
//   rank 2   step   0     0     0     0      so that the ranks that have joined know what to take part in
//
// The Reducer calls it, on the thread that runs forward and backward. Outside of run() all ranks are active, and
// announce() does nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/data_parallel.h"
#include "lockstep/parallel/data/distributed_model.h"

namespace lockstep::parallel {

class Joining {
 public:
  // What an active rank is about to do. The ranks that have joined must know it.
  enum class Event : std::uint8_t { none, buffers, backward };

  explicit Joining(DistributedModel& model);

  // Collective. Runs `body`, and then takes part in what the active ranks do, until no rank is active. `stand_in` takes
  // part in a backward. At the end, all ranks have the parameters and buffers of a rank that was active to the last.
  void run(const std::function<void()>& body, const JoinOptions& options, const std::function<void()>& stand_in);

  // Collective inside run(): tells all ranks what this rank is about to do.
  void announce(Event mine);

  bool inside() const { return options_.has_value(); }
  bool divides_by_active() const { return options_ && options_->divide_by_active; }
  // The ranks that took part in the last event, in ascending order and at least one; outside of run(), all ranks.
  const std::vector<Rank>& active() const { return active_; }

 private:
  Event exchange(Event mine);
  void all_are_active();

  DistributedModel& model_;
  std::optional<JoinOptions> options_;  // of the run() in progress
  std::vector<Rank> active_;
};

}  // namespace lockstep::parallel
