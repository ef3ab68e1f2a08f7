// Looks after a collective that takes long: who is late, is it dead, is it doing something else?
//
// A rank that waits tells all others what it waits in (a position), and hears what they wait in. So ranks that wait for
// each other in different collectives find out, although no message of theirs ever meets. It costs nothing as long as
// nobody waits.
//
// Texts name ranks of the world, for they may reach ranks outside the group.
//
// Not thread-safe: whoever runs the collective owns it.
#pragma once

#include <atomic>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/call.h"
#include "lockstep/comm/flight.h"
#include "lockstep/comm/options.h"

namespace lockstep::comm {

class Watch {
 public:
  Watch(collectives::Party& party, const Flight& flight, Tag tag, const Options& options);
  ~Watch();

  void begin(const transport::Label& fingerprint, Duration timeout) {
    fingerprint_ = fingerprint;
    timeout_ = timeout;
    delayed_since_.reset();
    if (fingerprint.words[0] % Flight::kKept == 0 && party_.size() > 1) hear();
  }

  // While the collective waits for `awaited`. Throws TimedOut, WrongLabel, or Error when told to stop.
  void on_delay(std::span<const Rank> awaited);

  // A collective that hears from all ranks has ended: everyone has come at least this far.
  void all_came_to(std::uint64_t sequence) { common_ = sequence; }

  // Makes the collective that waits give up; from any thread.
  void stop() { stop_ = true; }

  // What each of the other ranks was last heard to be doing: "rank 2 was last heard of in all_reduce 120 (...)".
  std::string positions();
  // "rank 2 left after collective 120", if it has said so.
  std::optional<std::string> farewell_of(Rank rank);
  // Says goodbye to all: this rank is done after its last collective.
  void say_farewell(std::uint64_t last_sequence) noexcept;

 private:
  void tell(const transport::Label& position);
  std::string names(std::span<const Rank> ranks) const;
  Rank world_rank(Rank rank) const { return party_.world[static_cast<std::size_t>(rank)]; }
  void check_farewells(std::span<const Rank> awaited);
  void hear();
  void warn(std::span<const Rank> awaited, Duration waited);
  [[noreturn]] void time_out(std::span<const Rank> awaited);

  collectives::Party& party_;
  const Flight& flight_;
  const Tag tag_;
  const Options& options_;
  transport::Label fingerprint_;
  Duration timeout_;
  std::optional<Clock::time_point> delayed_since_;  // of this collective, when it first waited
  Clock::time_point next_warning_;
  bool told_ = false;
  std::uint64_t common_ = 0;
  std::atomic<bool> stop_{false};
  std::vector<std::optional<transport::Label>> heard_;  // by rank

  struct Telling {
    transport::Label position;
    std::vector<transport::Work> works;
  };
  std::list<Telling> tellings_;  // on their way; they must not move
};

}  // namespace lockstep::comm
