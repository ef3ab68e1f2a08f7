// The fingerprint of a collective: what ranks compare before they use each other's data.
//
// It consists of the sequence number, the step, op, algorithm, dtype, count, reduce op, root, purpose, the number of
// the communicator, and a hash of all collectives before this one. It travels as the label of a message, or in a line
// of the board (board.h). Only this class knows which bits are what.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/collectives/call.h"
#include "lockstep/transport.h"

namespace lockstep::collectives {

class Fingerprint {
 public:
  Fingerprint() = default;  // of no collective
  explicit Fingerprint(const transport::Label& label) : label_(label) {}
  // `context` is the number of the communicator, and `history` the hash() of the collective before this one.
  Fingerprint(const Call& call, std::uint64_t sequence, std::uint16_t context, std::uint16_t history);
  // Stands in the place of a position when a rank leaves after the collective `last_sequence`.
  static Fingerprint farewell(std::uint64_t last_sequence);

  bool operator==(const Fingerprint&) const = default;
  bool empty() const { return label_.empty(); }
  bool is_farewell() const;
  std::uint64_t sequence() const;
  std::uint32_t step() const;
  // Contains the hash of all collectives before, too.
  std::uint16_t hash() const;
  // "all_reduce 121 (float32, 1024 elements, sum, algorithm ring)", followed by " of step 7" if it belongs to a step,
  // and by " in communicator 3" unless that is the first one.
  std::string text() const;
  const transport::Label& label() const { return label_; }

 private:
  transport::Label label_;
};

}  // namespace lockstep::collectives
