#include "lockstep/collectives/arena.h"

#include <algorithm>
#include <atomic>
#include <functional>

#include "lockstep/base/fork.h"
#include "lockstep/error.h"

namespace lockstep::collectives {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kOffsetBits = 40;  // for buffers of up to 1 TB, and up to 16 million allocations

// Lies at the beginning of a region.
struct Header {
  std::atomic<std::uint32_t> let_go;  // number of ranks that have released their pointer
};

// Buffers of one allocation begin at different offsets in a page, so that they do not compete for the same cache set.
std::size_t stride_for(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage + 5 * 64; }

}  // namespace

std::size_t Arena::bytes_needed(int ranks, std::size_t bytes) {
  return kPage + static_cast<std::size_t>(ranks) * stride_for(bytes);
}

std::byte* Arena::Allocation::buffer(Rank rank) const { return region->data() + kPage + index_of(rank) * stride; }

bool Arena::Allocation::let_go_by_all(int ranks) const {
  return reinterpret_cast<Header*>(region->data())->let_go.load(std::memory_order_acquire) >=
         static_cast<std::uint32_t>(ranks);
}

std::shared_ptr<Bytes> Arena::add(const std::shared_ptr<transport::shm::Region>& region, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::erase_if(allocations_, [&](const Allocation& old) { return old.let_go_by_all(ranks_); });
  const Allocation& added = allocations_.emplace_back(Allocation{++last_number_, bytes, stride_for(bytes), region});
  return {new Bytes(added.buffer(me_), bytes), [region, birthplace = Birthplace()](Bytes* view) {
            if (!birthplace.is_elsewhere())
              reinterpret_cast<Header*>(region->data())->let_go.fetch_add(1, std::memory_order_release);
            delete view;
          }};
}

Location Arena::find(const void* data, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  for (const Allocation& allocation : allocations_) {
    const std::byte* mine = allocation.buffer(me_);
    if (std::less<>()(begin, mine) || std::less<>()(mine + allocation.bytes, begin + bytes)) continue;
    return allocation.number << kOffsetBits | static_cast<std::uint64_t>(begin - mine);
  }
  return kPrivate;
}

std::byte* Arena::address(Location location, Rank rank) const {
  const std::uint64_t number = location >> kOffsetBits;
  const std::uint64_t offset = location & ((std::uint64_t{1} << kOffsetBits) - 1);
  const std::lock_guard lock(mutex_);
  for (const Allocation& allocation : allocations_)
    if (allocation.number == number && offset <= allocation.bytes) return allocation.buffer(rank) + offset;
  throw Error("a peer named a buffer of the arena that does not exist");
}

}  // namespace lockstep::collectives
