// The board: where the ranks of one host meet in shared memory. Each rank posts a note, and continues when it has seen
// the notes of all ranks.
//
//   rank 0   | line | line |      a line is a cache line: a stamp, a count of sleepers, and 56 bytes of its post
//   rank 1   | line | line |      the two lines are used in turn
//   ...      after the lines: each rank's core, then two slots per rank for small buffers, then two segments per rank
//
// Invariants:
//  1. Post number n goes to line n mod 2, with stamp n. A rank posts n+1 only after it has seen all posts n.
//  2. So when post n+2 replaces post n, all ranks have posted n+1, and no rank still reads post n.
//  3. The same holds for slots and segments, if a rank reads those of post n after it has seen all posts n and before
//     it posts n+1.
//
// Not thread-safe: only one thread of a rank may use it at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/collectives/fingerprint.h"
#include "lockstep/transport.h"
#include "lockstep/transport/patience.h"
#include "lockstep/transport/shm/region.h"
#include "lockstep/types.h"

namespace lockstep::collectives {

struct alignas(64) Line {
  std::atomic<std::uint32_t> stamp;  // number of the post in this line; a futex word
  std::atomic<std::uint32_t> sleepers;
  Fingerprint fingerprint;
  std::byte note[32];
};
static_assert(sizeof(Line) == 64);

// The core on which a rank last posted. It is written only if it changes, so reading it is cheap.
struct alignas(64) Whereabouts {
  std::atomic<int> core;
};

class Board {
 public:
  Board(std::shared_ptr<transport::shm::Region> region, Rank me, int ranks, std::size_t slot_bytes,
        std::size_t segment_bytes);
  static std::size_t bytes_needed(int ranks, std::size_t slot_bytes, std::size_t segment_bytes);

  // The line for the note of the next post.
  Line& next() { return line(me_, posted_ + 1); }
  void post();
  // Waits until all ranks have made the post that this rank made last. Throws what `on_delay` throws.
  void await_all(const std::function<void(std::span<const Rank>)>& on_delay) {
    for (Rank rank = 0; rank < ranks_; ++rank)
      if (line(rank, posted_).stamp.load(std::memory_order_acquire) != posted_) await(rank, on_delay);
  }
  void synchronise(const std::function<void(std::span<const Rank>)>& on_delay) {
    post();
    await_all(on_delay);
  }

  // What a rank has posted. Valid after await_all().
  const Line& seen(Rank rank) const { return line(rank, posted_); }
  // Room for `bytes` bytes beside this rank's next post: its slot, or its segment if the slot is too small.
  std::byte* next_room(std::size_t bytes) const { return room(me_, posted_ + 1, bytes); }
  // The same room beside the post of `rank` that was just seen.
  const std::byte* seen_room(Rank rank, std::size_t bytes) const { return room(rank, posted_, bytes); }
  // The segment of `rank` that belongs to its post of this number.
  std::byte* segment(Rank rank, std::uint32_t number) const;
  // The number of the post that this rank made last.
  std::uint32_t posted() const { return posted_; }

  std::size_t slot_bytes() const { return slot_bytes_; }
  std::size_t segment_bytes() const { return segment_bytes_; }

 private:
  Line& line(Rank rank, std::uint32_t number) const { return lines_[2 * index_of(rank) + (number & 1)]; }
  std::byte* slot(Rank rank, std::uint32_t number) const {
    return slots_ + (2 * index_of(rank) + (number & 1)) * slot_bytes_;
  }
  std::byte* room(Rank rank, std::uint32_t number, std::size_t bytes) const {
    return bytes <= slot_bytes_ ? slot(rank, number) : segment(rank, number);
  }
  void take_turns_with(Rank rank, transport::Patience& patience);
  void await(Rank rank, const std::function<void(std::span<const Rank>)>& on_delay);
  void delay(const std::function<void(std::span<const Rank>)>& on_delay);
  std::vector<Rank> missing() const;

  std::shared_ptr<transport::shm::Region> region_;
  const Rank me_;
  const int ranks_;
  const std::size_t slot_bytes_;
  const std::size_t segment_bytes_;
  const transport::WaitPolicy policy_;
  Line* lines_;
  Whereabouts* whereabouts_;
  int my_core_ = -1;
  Clock::time_point next_move_;
  std::byte* slots_;
  std::byte* segments_;
  std::uint32_t posted_ = 0;
};

}  // namespace lockstep::collectives
