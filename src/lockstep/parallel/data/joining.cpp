#include "lockstep/parallel/data/joining.h"

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep::parallel {

Joining::Joining(DistributedModel& model) : model_(model) { all_are_active(); }

void Joining::all_are_active() {
  active_.clear();
  for (Rank rank = 0; rank < model_.comm.size(); ++rank) active_.push_back(rank);
}

void Joining::run(const std::function<void()>& body, const JoinOptions& options,
                  const std::function<void()>& stand_in) {
  if (options_) throw UsageError("join inside join");
  options_ = options;
  struct Leave {
    std::optional<JoinOptions>& inside;
    ~Leave() { inside.reset(); }
  } leave{options_};
  Communicator& comm = model_.comm;
  try {
    body();
  } catch (const std::exception& error) {  // the others may be waiting for this rank inside join
    comm.abort(fmt::format("rank {}: {}", comm.world_rank(), error.what()));
    throw;
  }

  const torch::NoGradGuard no_grad;
  for (;;) {
    const Event event = exchange(Event::none);
    if (event == Event::none) break;
    if (event == Event::buffers) broadcast_all(model_.tensors.buffers, comm, active_.back());
    if (event == Event::backward) stand_in();
  }
  const Rank last = active_.back();  // a rank that took part in the last event has made all updates
  broadcast_all(model_.tensors.trained, comm, last);
  broadcast_all(model_.tensors.buffers, comm, last);
  all_are_active();
}

void Joining::announce(Event mine) {
  if (options_) exchange(mine);
}

// A rank that has joined announces Event::none. Returns what the active ranks are about to do, and stores these ranks
// in active_. If no rank is active, returns Event::none and leaves active_ unchanged.
Joining::Event Joining::exchange(Event mine) {
  Communicator& comm = model_.comm;
  const auto word = static_cast<std::uint8_t>(mine);
  std::vector<std::uint8_t> words(static_cast<std::size_t>(comm.size()));
  comm.all_gather(ConstBuffer(&word, 1, DType::uint8), Buffer(words.data(), words.size(), DType::uint8));
  std::vector<Rank> active;
  for (Rank rank = 0; rank < comm.size(); ++rank) {
    const auto event = static_cast<Event>(words[index_of(rank)]);
    if (event == Event::none) continue;
    if (!active.empty() && event != static_cast<Event>(words[static_cast<std::size_t>(active.front())]))
      throw Mismatch(fmt::format("inside join, rank {} begins a {} and rank {} a {}", comm.world_rank(active.front()),
                                 event == Event::backward ? "forward" : "backward", comm.world_rank(rank),
                                 event == Event::backward ? "backward" : "forward"),
                     "the same order of forward and backward on all ranks that have batches");
    active.push_back(rank);
  }
  if (active.empty()) return Event::none;
  active_ = std::move(active);
  return static_cast<Event>(words[static_cast<std::size_t>(active_.front())]);
}

}  // namespace lockstep::parallel
