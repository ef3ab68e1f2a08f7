// Ranks with different numbers of batches. A rank that has no more batches takes part in the others' collectives with
// zeros.
//
//   rank 0   step  step  step  step  step
//   rank 1   step  step  step   0     0      joined: before each event of the active ranks, all ranks exchange a word,
//   rank 2   step   0     0     0     0      so that the ranks that have joined know what to take part in
#include <fmt/format.h>
#include <algorithm>

#include "lockstep/error.h"
#include "lockstep/parallel/data/reducer.h"

namespace lockstep::parallel {

void Reducer::join(const std::function<void()>& body, const JoinOptions& options) {
  if (options_.sharded)
    throw UsageError("join with sharded: a rank that has no more batches would not update its share",
                     "ddp or flat, or the same number of batches on all ranks");
  if (joining_) throw UsageError("join inside join");
  joining_ = options;
  struct Leave {
    std::optional<JoinOptions>& joining;
    ~Leave() { joining.reset(); }
  } leave{joining_};
  comm_.begin_step(steps_ = 0);  // inside join, steps are not counted: ranks may make different numbers of them
  try {
    body();
  } catch (const std::exception& error) {  // the others may be waiting for this rank inside join
    comm_.abort(fmt::format("rank {}: {}", comm_.world_rank(), error.what()));
    throw;
  }

  const torch::NoGradGuard no_grad;
  for (;;) {
    const Event event = announce(Event::none);
    if (event == Event::none) break;
    if (event == Event::buffers) broadcast_all(tensors_.buffers, comm_, active_.back());
    if (event == Event::backward) stand_in();
  }
  const Rank last = active_.back();  // a rank that took part in the last event has made all updates
  broadcast_all(tensors_.trained, comm_, last);
  broadcast_all(tensors_.buffers, comm_, last);
  active_.clear();
  for (Rank rank = 0; rank < comm_.size(); ++rank) active_.push_back(rank);
}

// Tells all ranks what this rank is about to do; a rank that has joined announces Event::none. Returns what the active
// ranks are about to do, and stores these ranks in active_. If no rank is active, returns Event::none and leaves
// active_ unchanged.
Reducer::Event Reducer::announce(Event mine) {
  const auto word = static_cast<std::uint8_t>(mine);
  std::vector<std::uint8_t> words(static_cast<std::size_t>(comm_.size()));
  comm_.all_gather(ConstBuffer(&word, 1, DType::uint8), Buffer(words.data(), words.size(), DType::uint8));
  std::vector<Rank> active;
  for (Rank rank = 0; rank < comm_.size(); ++rank) {
    const auto event = static_cast<Event>(words[index_of(rank)]);
    if (event == Event::none) continue;
    if (!active.empty() && event != static_cast<Event>(words[static_cast<std::size_t>(active.front())]))
      throw Mismatch(fmt::format("inside join, rank {} begins a {} and rank {} a {}", comm_.world_rank(active.front()),
                                 event == Event::backward ? "forward" : "backward", comm_.world_rank(rank),
                                 event == Event::backward ? "backward" : "forward"),
                     "the same order of forward and backward on all ranks that have batches");
    active.push_back(rank);
  }
  if (active.empty()) return Event::none;
  active_ = std::move(active);
  return static_cast<Event>(words[static_cast<std::size_t>(active_.front())]);
}

// Takes part, on a rank that has joined, in a backward of the active ranks.
void Reducer::stand_in() {
  begin_buckets();
  for (const GradientBucket& bucket : gradients_.buckets()) {
    bucket.flat().zero_();
    reduce(bucket.index(), true);
  }
  wait_for_buckets();
  share_used();
  if (!rebuilt_) rebuild();
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
}

}  // namespace lockstep::parallel
