// The numbers of a world's communicators, and which of them keeps the trace.
//
// All ranks of a communicator must give it the same number, which tells its messages from those of others. Ranks agree
// on it by taking the highest number that any of them has used, plus one.
#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/world.h"

namespace lockstep::comm {

class Numbering {
 public:
  // The numbering of this world, which is made at the first call.
  static Numbering& of(World& world);

  // The highest number that this rank has used; 0 is the transport's own.
  std::uint32_t used() const { return used_; }
  // The number after `used`, which is the highest one that any rank of the new communicator has used. Throws UsageError
  // if there is none left.
  std::uint16_t next(std::uint32_t used);
  // The same for a communicator of all ranks, which agree on the number here. Collective.
  std::uint16_t next_of_all(World& world);

  // True for the first caller only, which then keeps the trace of this world.
  bool claim_trace() { return !std::exchange(traced_, true); }

 private:
  std::uint32_t used_ = 0;
  int of_all_ = 0;  // communicators of all ranks that were made
  bool traced_ = false;
};

}  // namespace lockstep::comm
