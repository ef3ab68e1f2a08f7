// Watches a collective that takes long: which rank is late, is it dead, or is it doing something else?
//
// A rank that waits tells all others in which collective it waits (its position), and receives their positions. So
// ranks that wait for each other in different collectives find out, although their messages never meet. This costs
// nothing as long as no rank waits.
//
// Texts name ranks by their number in the world, because they may reach ranks outside of the group.
//
// Not thread-safe: apart from stop(), only the thread that runs the collective may use it.
#pragma once

#include <atomic>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/fingerprint.h"
#include "lockstep/comm/flight_recorder.h"
#include "lockstep/options.h"
#include "lockstep/transport.h"

namespace lockstep::comm {

class StallMonitor {
 public:
  StallMonitor(collectives::Group& group, const FlightRecorder& flight, Tag tag, const Options& options);
  ~StallMonitor();

  void begin(const Fingerprint& fingerprint, Duration timeout) {
    fingerprint_ = fingerprint;
    timeout_ = timeout;
    delayed_since_.reset();
    if (fingerprint.sequence() % FlightRecorder::kKept == 0 && group_.size() > 1) hear();
  }

  // Called while the collective waits for `awaited`. Throws TimedOut, WrongLabel if a rank waits in another collective,
  // PeerDied if one of `awaited` has left, and Error after stop().
  void on_delay(std::span<const Rank> awaited);

  // Called when a collective has ended that hears from all ranks: every rank has come at least to `sequence`.
  void all_came_to(std::uint64_t sequence) { common_ = sequence; }

  // Makes the waiting collective give up. May be called from any thread.
  void stop() { stop_ = true; }

  // What is known about each of the other ranks: "rank 2 waits in all_reduce 120 (...)", "rank 2 was last seen in
  // collective 119" or "rank 2 left after collective 120".
  std::string positions();
  // "rank 2 left after collective 120"; none if the rank has not said so.
  std::optional<std::string> farewell_of(Rank rank);
  // Tells all ranks that this rank leaves after its last collective.
  void say_farewell(std::uint64_t last_sequence) noexcept;

 private:
  void tell(const Fingerprint& position);
  std::string names(std::span<const Rank> ranks) const;
  Rank world_rank(Rank rank) const { return group_.world[index_of(rank)]; }
  void check_farewells(std::span<const Rank> awaited);
  void hear();
  void warn(std::span<const Rank> awaited, Duration waited);
  [[noreturn]] void time_out(std::span<const Rank> awaited);

  collectives::Group& group_;
  const FlightRecorder& flights_;
  const Tag tag_;
  const Options& options_;
  Fingerprint fingerprint_;
  Duration timeout_;
  std::optional<Clock::time_point> delayed_since_;  // when this collective waited for the first time
  Clock::time_point next_warning_;
  bool told_ = false;
  std::uint64_t common_ = 0;
  std::atomic<bool> stop_{false};
  std::vector<std::optional<Fingerprint>> heard_;  // last position of each rank

  struct Telling {
    Fingerprint position;
    std::vector<transport::PendingMessage> works;
  };
  std::list<Telling> tellings_;  // in flight; in a list, because they must not move in memory
};

}  // namespace lockstep::comm
