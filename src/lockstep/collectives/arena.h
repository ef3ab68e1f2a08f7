// The arena: buffers in memory that all ranks of a communicator have mapped. Each allocation is a region with one
// buffer per rank, so a rank finds a peer's buffer at a known place and works in it without a copy.
//
// On its owner, a buffer stays mapped as long as the owner's pointer lives. The other ranks keep it mapped until every
// rank has released its pointer, because until then a peer may name it in a collective.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/transport/shm/region.h"
#include "lockstep/types.h"

namespace lockstep::collectives {

// Where a buffer lies: the number of the allocation and the offset in a rank's buffer. kPrivate stands for memory
// outside the arena.
using Location = std::uint64_t;
constexpr Location kPrivate = 0;

// All methods may be called from any thread.
class Arena {
 public:
  Arena(Rank me, int ranks) : me_(me), ranks_(ranks) {}

  // The size of a region with a buffer of `bytes` bytes for each rank.
  static std::size_t bytes_needed(int ranks, std::size_t bytes);
  // Adds a region that all ranks share, and returns this rank's buffer in it. All ranks must call it in the same order.
  std::shared_ptr<Bytes> add(const std::shared_ptr<transport::shm::Region>& region, std::size_t bytes);

  // The location of [data, data + bytes), or kPrivate if not all of it lies in one of this rank's buffers.
  Location find(const void* data, std::size_t bytes) const;
  // The address in this process of a location that `rank` has named. Throws Error if there is no such buffer.
  std::byte* address(Location location, Rank rank) const;

 private:
  struct Allocation {
    std::uint64_t number;
    std::size_t bytes;  // size of each rank's buffer
    std::size_t stride;
    std::shared_ptr<transport::shm::Region> region;

    std::byte* buffer(Rank rank) const;
    bool let_go_by_all(int ranks) const;
  };

  const Rank me_;
  const int ranks_;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<Allocation> allocations_;
  std::uint64_t last_number_ = 0;
};

}  // namespace lockstep::collectives
