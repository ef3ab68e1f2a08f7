#include "lockstep/comm/stall_monitor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/transport.h"

namespace lockstep::comm {
namespace {

using collectives::Fingerprint;

constexpr auto kBeforeTelling = 100ms;
constexpr auto kSendPatience = 2s;  // bounds the destructor's wait for a peer that has stopped

}  // namespace

StallMonitor::StallMonitor(collectives::Group& group, const FlightRecorder& flight, Tag tag, const Options& options)
    : group_(group),
      flights_(flight),
      tag_(tag),
      options_(options),
      timeout_(options.timeout),
      heard_(static_cast<std::size_t>(group.size())) {}

StallMonitor::~StallMonitor() {
  // The messages are small, so nearly all of them are gone already. The others must be waited for, because they are
  // read from memory that is freed now.
  for (Telling& telling : tellings_)
    for (transport::PendingMessage& work : telling.works) try {
        work.wait();
      } catch (...) {  // the peer is gone, so the memory is no longer read
      }
}

void StallMonitor::on_delay(std::span<const Rank> awaited) {
  if (stop_)
    throw Error(fmt::format("rank {}: the communicator was closed with this work under way", world_rank(group_.me)));
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

std::string StallMonitor::names(std::span<const Rank> ranks) const {
  std::vector<Rank> found;
  for (const Rank rank : ranks) found.push_back(world_rank(rank));
  return fmt::format("{} {}", found.size() == 1 ? "rank" : "ranks", fmt::join(found, ", "));
}

// A rank that has said goodbye will not come any more.
void StallMonitor::check_farewells(std::span<const Rank> awaited) {
  for (const Rank rank : awaited) {
    const auto& position = heard_[index_of(rank)];
    if (position && position->is_farewell() && position->sequence() < fingerprint_.sequence())
      throw PeerDied(world_rank(rank), *farewell_of(rank));
  }
}

void StallMonitor::tell(const Fingerprint& position) {
  std::erase_if(tellings_, [](Telling& telling) {
    return std::all_of(telling.works.begin(), telling.works.end(),
                       [](transport::PendingMessage& work) { return work.done(); });
  });
  Telling& telling = tellings_.emplace_back(Telling{position, {}});
  for (Rank rank = 0; rank < group_.size(); ++rank)
    if (rank != group_.me)
      telling.works.push_back(
          group_.transport->send_async(group_.world[index_of(rank)], tag_, bytes_of(telling.position), kSendPatience));
}

void StallMonitor::hear() {
  for (Rank rank = 0; rank < group_.size(); ++rank) {
    if (rank == group_.me) continue;
    Fingerprint position;
    while (group_.transport->try_recv(group_.world[index_of(rank)], tag_, writable_bytes_of(position))) {
      heard_[index_of(rank)] = position;
      if (position.is_farewell()) continue;
      // What this rank does, or did, under the same number.
      const auto mine = flights_.find(position.sequence());
      if (mine && *mine != position)
        throw transport::WrongLabel(position.label(),
                                    {.message = fmt::format("rank {} waits in another collective", rank),
                                     .peer = group_.world[index_of(rank)]});
    }
  }
}

std::string StallMonitor::positions() {
  std::string text;
  for (Rank rank = 0; rank < group_.size(); ++rank) {
    if (rank == group_.me) continue;
    const auto& position = heard_[index_of(rank)];
    if (!text.empty()) text += ", ";
    if (!position || (!position->is_farewell() && position->sequence() < common_))
      text += fmt::format("rank {} was last seen in collective {}", world_rank(rank), common_);
    else if (position->is_farewell())
      text += fmt::format("rank {} left after collective {}", world_rank(rank), position->sequence());
    else
      text += fmt::format("rank {} waits in {}", world_rank(rank), position->text());
  }
  return text;
}

std::optional<std::string> StallMonitor::farewell_of(Rank rank) {
  try {
    hear();
  } catch (const Error&) {  // the caller already knows the cause
  }
  const auto& position = heard_[index_of(rank)];
  if (!position || !position->is_farewell()) return std::nullopt;
  return fmt::format("rank {} left after collective {}", world_rank(rank), position->sequence());
}

void StallMonitor::say_farewell(std::uint64_t last_sequence) noexcept {
  try {
    tell(Fingerprint::farewell(last_sequence));
  } catch (...) {  // the other ranks are gone, so there is nobody to tell
  }
}

void StallMonitor::warn(std::span<const Rank> awaited, Duration waited) {
  log::warn("rank {} has waited {:.0f} s for {} in {}. {}", world_rank(group_.me),
            std::chrono::duration<double>(waited).count(), names(awaited), fingerprint_.text(), positions());
}

void StallMonitor::time_out(std::span<const Rank> awaited) {
  hear();
  const double seconds = std::chrono::duration<double>(timeout_).count();
  throw TimedOut(ErrorFacts{
      .rank = world_rank(group_.me),
      .operation = fingerprint_.text(),
      .message = fmt::format("timed out after {:.3g} s, waiting for {}. {}", seconds, names(awaited), positions()),
      .peer = awaited.size() == 1 ? world_rank(awaited.front()) : kNoRank,
      .hint = fmt::format("look at {}: stopped, or busy elsewhere? LOCKSTEP_TIMEOUT waits longer", names(awaited))});
}

}  // namespace lockstep::comm
