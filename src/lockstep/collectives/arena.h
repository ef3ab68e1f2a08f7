// The arena: buffers in memory that all ranks of a communicator have mapped. Each allocation is a region with one
// buffer a rank, so a rank finds a peer's buffer at a known place and works in it without a copy.
//
// A buffer's mapping lives as long as its owner's pointer. The others keep theirs until every rank has let go, because
// until then a peer may name it in a collective.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/base/types.h"
#include "lockstep/transport/shm/region.h"

namespace lockstep::collectives {

// Where a buffer lies: the allocation's number and the offset in a rank's buffer. 0 is memory of the rank's own.
using Location = std::uint64_t;
constexpr Location kPrivate = 0;

// All methods may be called from any thread.
class Arena {
 public:
  Arena(Rank me, int ranks) : me_(me), ranks_(ranks) {}

  // The size of a region for buffers of so many bytes.
  static std::size_t bytes_needed(int ranks, std::size_t bytes);
  // Takes in a region that all ranks share; gives this rank's buffer in it. Ranks call it in the same order.
  std::shared_ptr<Bytes> add(const std::shared_ptr<transport::shm::Region>& region, std::size_t bytes);

  // kPrivate unless all of [data, data + bytes) lies in one of this rank's buffers.
  Location find(const void* data, std::size_t bytes) const;
  // Where a location that `rank` has named lies here.
  std::byte* address(Location location, Rank rank) const;

 private:
  struct Allocation {
    std::uint64_t number;
    std::size_t bytes;  // of each rank's buffer
    std::size_t stride;
    std::shared_ptr<transport::shm::Region> region;

    std::byte* buffer(Rank rank) const;
    bool let_go_by_all(int ranks) const;
  };

  const Rank me_;
  const int ranks_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Allocation> allocations_;
  std::uint64_t last_number_ = 0;
};

}  // namespace lockstep::collectives
