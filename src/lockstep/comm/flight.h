// The last collectives of a rank: what it would say if it were asked what it has been doing. Written to a file when
// ranks disagree or one does not come.
//
// Not thread-safe: whoever runs the collective owns it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/collectives/call.h"
#include "lockstep/transport/transport.h"

namespace lockstep::comm {

class Flight {
 public:
  static constexpr std::size_t kKept = 256;

  void begin(const transport::Label& fingerprint, std::uint64_t bytes) {
    current_ = &entries_[sequence_of(fingerprint) % kKept];
    *current_ = {fingerprint, bytes, State::running, Clock::now(), {}};
  }
  void end(bool well) {
    current_->state = well ? State::done : State::failed;
    current_->ended = Clock::now();
  }

  // What this rank did, or does, as collective `sequence`; nothing if that is too long ago or still to come.
  std::optional<transport::Label> find(std::uint64_t sequence) const;

  // Writes them, oldest first, to a new file in `dir`. Returns its path, or why there is none, for the error's text. An
  // empty `dir` is the folder lockstep-UID in the temporary directory, which nobody else may enter; only the newest
  // kDumps files stay there.
  static constexpr std::size_t kDumps = 32;
  std::string dump(const std::string& dir, Rank rank, const std::string& why) const noexcept;

 private:
  enum class State : std::uint8_t { none, running, done, failed };
  struct Entry {
    transport::Label fingerprint;
    std::uint64_t bytes = 0;
    State state = State::none;
    Clock::time_point began;
    Clock::time_point ended;
  };
  // Without the step, which the first word of a fingerprint holds, too.
  static std::uint64_t sequence_of(const transport::Label& fingerprint) {
    return collectives::sequence_of(fingerprint);
  }

  std::array<Entry, kKept> entries_;  // by sequence number
  Entry* current_ = nullptr;
};

}  // namespace lockstep::comm
