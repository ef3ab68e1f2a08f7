#include "lockstep/comm/watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/base/log.h"

namespace lockstep::comm {
namespace {

using transport::Label;

constexpr auto kBeforeTelling = 100ms;
constexpr auto kSendPatience = 2s;                      // bounds the destructor's wait for a peer that has stopped
constexpr std::uint64_t kFarewell = ~std::uint64_t{0};  // stands where a fingerprint has the op, the dtype and so on

bool is_farewell(const Label& position) { return position.words[2] == kFarewell; }

}  // namespace

Watch::Watch(collectives::Party& party, const Flight& flight, Tag tag, const Options& options)
    : party_(party),
      flight_(flight),
      tag_(tag),
      options_(options),
      timeout_(options.timeout),
      heard_(static_cast<std::size_t>(party.size())) {}

Watch::~Watch() {
  // The messages are small, so nearly all of them are gone already. The others must be waited for, because they are
  // read from memory that is freed now.
  for (Telling& telling : tellings_)
    for (transport::Work& work : telling.works) try {
        work.wait();
      } catch (...) {  // the peer is gone, so the memory is no longer read
      }
}

void Watch::on_delay(std::span<const Rank> awaited) {
  if (stop_)
    throw Error(fmt::format("rank {}: the communicator was closed with this work under way", world_rank(party_.me)));
  const auto now = Clock::now();
  if (!delayed_since_) {
    delayed_since_ = now;
    next_warning_ = now + options_.first_warning;
    told_ = false;
  }
  const Duration waited = now - *delayed_since_;
  if (waited >= timeout_) time_out(awaited);
  if (waited >= kBeforeTelling) {
    if (!told_) tell(fingerprint_);
    told_ = true;
    hear();
    check_farewells(awaited);
  }
  if (now >= next_warning_) {
    warn(awaited, waited);
    next_warning_ = now + options_.first_warning * 6;
  }
}

std::string Watch::names(std::span<const Rank> ranks) const {
  std::vector<Rank> found;
  for (const Rank rank : ranks) found.push_back(world_rank(rank));
  return fmt::format("{} {}", found.size() == 1 ? "rank" : "ranks", fmt::join(found, ", "));
}

// A rank that has said goodbye will not come any more.
void Watch::check_farewells(std::span<const Rank> awaited) {
  for (const Rank rank : awaited) {
    const auto& position = heard_[static_cast<std::size_t>(rank)];
    if (position && is_farewell(*position) &&
        collectives::sequence_of(*position) < collectives::sequence_of(fingerprint_))
      throw PeerDied(world_rank(rank), *farewell_of(rank));
  }
}

void Watch::tell(const Label& position) {
  std::erase_if(tellings_, [](Telling& telling) {
    return std::all_of(telling.works.begin(), telling.works.end(), [](transport::Work& work) { return work.done(); });
  });
  Telling& telling = tellings_.emplace_back(Telling{position, {}});
  for (Rank rank = 0; rank < party_.size(); ++rank)
    if (rank != party_.me)
      telling.works.push_back(party_.transport->send_async(party_.world[static_cast<std::size_t>(rank)], tag_,
                                                           bytes_of(telling.position), kSendPatience));
}

void Watch::hear() {
  for (Rank rank = 0; rank < party_.size(); ++rank) {
    if (rank == party_.me) continue;
    Label position;
    while (
        party_.transport->try_recv(party_.world[static_cast<std::size_t>(rank)], tag_, writable_bytes_of(position))) {
      heard_[static_cast<std::size_t>(rank)] = position;
      if (is_farewell(position)) continue;
      // What this rank does, or did, under the same number.
      const auto mine = flight_.find(collectives::sequence_of(position));
      if (mine && *mine != position)
        throw transport::WrongLabel(party_.world[static_cast<std::size_t>(rank)], position,
                                    fmt::format("rank {} waits in another collective", rank));
    }
  }
}

std::string Watch::positions() {
  std::string text;
  for (Rank rank = 0; rank < party_.size(); ++rank) {
    if (rank == party_.me) continue;
    const auto& position = heard_[static_cast<std::size_t>(rank)];
    if (!text.empty()) text += ", ";
    if (!position || (!is_farewell(*position) && collectives::sequence_of(*position) < common_))
      text += fmt::format("rank {} was last seen in collective {}", world_rank(rank), common_);
    else if (is_farewell(*position))
      text += fmt::format("rank {} left after collective {}", world_rank(rank), collectives::sequence_of(*position));
    else
      text += fmt::format("rank {} waits in {}", world_rank(rank), collectives::describe(*position));
  }
  return text;
}

std::optional<std::string> Watch::farewell_of(Rank rank) {
  try {
    hear();
  } catch (const Error&) {  // the caller already knows the cause
  }
  const auto& position = heard_[static_cast<std::size_t>(rank)];
  if (!position || !is_farewell(*position)) return std::nullopt;
  return fmt::format("rank {} left after collective {}", world_rank(rank), collectives::sequence_of(*position));
}

void Watch::say_farewell(std::uint64_t last_sequence) noexcept {
  try {
    tell({{last_sequence, 0, kFarewell}});
  } catch (...) {  // the other ranks are gone, so there is nobody to tell
  }
}

void Watch::warn(std::span<const Rank> awaited, Duration waited) {
  log::warn("rank {} has waited {:.0f} s for {} in {}. {}", world_rank(party_.me),
            std::chrono::duration<double>(waited).count(), names(awaited), collectives::describe(fingerprint_),
            positions());
}

void Watch::time_out(std::span<const Rank> awaited) {
  hear();
  throw TimedOut(fmt::format("rank {}: {} timed out after {:.3g} s, waiting for {}. {}", world_rank(party_.me),
                             collectives::describe(fingerprint_), std::chrono::duration<double>(timeout_).count(),
                             names(awaited), positions()),
                 fmt::format("look at {}: stopped, or busy elsewhere? LOCKSTEP_TIMEOUT waits longer", names(awaited)));
}

}  // namespace lockstep::comm
