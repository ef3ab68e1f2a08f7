// The flight recorder: the last collectives of a rank. They are written to a file if ranks disagree or if a collective
// times out.
//
// Not thread-safe: only the thread that runs the collective may use it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/collectives/fingerprint.h"
#include "lockstep/transport.h"

namespace lockstep::comm {

using collectives::Fingerprint;

class FlightRecorder {
 public:
  static constexpr std::size_t kKept = 256;

  void begin(const Fingerprint& fingerprint, std::uint64_t bytes) {
    current_ = &entries_[fingerprint.sequence() % kKept];
    *current_ = {fingerprint, bytes, State::running, Clock::now(), {}};
  }
  void end(bool well) {
    current_->state = well ? State::done : State::failed;
    current_->ended = Clock::now();
  }

  // The fingerprint of this rank's collective number `sequence`. None if that was too long ago or has not begun yet.
  std::optional<Fingerprint> find(std::uint64_t sequence) const;

  // Writes the collectives, oldest first, to a new file in `dir`. Returns the file's path, or the reason why there is
  // no file, for the text of an error. An empty `dir` means the folder lockstep-UID in the temporary directory. No
  // other user may enter this folder, and only the newest kDumps files are kept there.
  static constexpr std::size_t kDumps = 32;
  std::string dump(const std::string& dir, Rank rank, const std::string& why) const noexcept;

 private:
  enum class State : std::uint8_t { none, running, done, failed };
  struct Entry {
    Fingerprint fingerprint;
    std::uint64_t bytes = 0;
    State state = State::none;
    Clock::time_point began;
    Clock::time_point ended;
  };

  std::array<Entry, kKept> entries_;  // indexed by sequence number modulo kKept
  Entry* current_ = nullptr;
};

}  // namespace lockstep::comm
