#include "lockstep/collectives/board.h"

#include <sched.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/cpu.h"
#include "lockstep/error.h"
#include "lockstep/transport/shm/futex.h"

namespace lockstep::collectives {
namespace {

constexpr auto kSlice = 50ms;  // longest sleep before `on_delay` is called

// After every kPassesBeforeLooking passes, a rank that waits checks whether it shares a core with the rank that it
// waits for.
constexpr int kPassesBeforeLooking = 20;
constexpr auto kBetweenMoves = 20ms;

std::size_t lines_bytes(int ranks) { return static_cast<std::size_t>(ranks) * 2 * sizeof(Line); }
std::size_t cores_bytes(int ranks) { return static_cast<std::size_t>(ranks) * sizeof(Whereabouts); }

}  // namespace

Board::Board(std::shared_ptr<transport::shm::Region> region, Rank me, int ranks, std::size_t slot_bytes,
             std::size_t segment_bytes)
    : region_(std::move(region)),
      me_(me),
      ranks_(ranks),
      slot_bytes_(slot_bytes),
      segment_bytes_(segment_bytes),
      policy_(transport::WaitPolicy::for_ranks(ranks, allowed_cores())),
      lines_(reinterpret_cast<Line*>(region_->data())),
      whereabouts_(reinterpret_cast<Whereabouts*>(region_->data() + lines_bytes(ranks))),
      slots_(region_->data() + lines_bytes(ranks) + cores_bytes(ranks)),
      segments_(slots_ + 2 * static_cast<std::size_t>(ranks) * slot_bytes) {}

std::size_t Board::bytes_needed(int ranks, std::size_t slot_bytes, std::size_t segment_bytes) {
  return lines_bytes(ranks) + cores_bytes(ranks) + 2 * static_cast<std::size_t>(ranks) * (slot_bytes + segment_bytes);
}

std::byte* Board::segment(Rank rank, std::uint32_t number) const {
  return segments_ + (2 * index_of(rank) + (number & 1)) * segment_bytes_;
}

// Makes the system call that wakes sleepers only if there are any. The fence makes sure that the stamp is written
// before `sleepers` is read; its counterpart is in await().
void Board::post() {
  if (const int core = ::sched_getcpu(); core != my_core_) {
    my_core_ = core;
    whereabouts_[me_].core.store(core, std::memory_order_relaxed);
  }
  ++posted_;
  Line& mine = line(me_, posted_);
  mine.stamp.store(posted_, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (mine.sleepers.load(std::memory_order_relaxed) != 0) transport::shm::futex_wake_all(mine.stamp);
}

// Two ranks that share a core must take turns instead of spinning. Even if there is a core for each rank, the kernel
// can leave both on one core for seconds, because neither ever sleeps. Then the higher rank moves, but not more often
// than every kBetweenMoves.
void Board::take_turns_with(Rank rank, transport::Patience& patience) {
  const int core = ::sched_getcpu();
  if (whereabouts_[rank].core.load(std::memory_order_relaxed) != core) return;
  patience.about_to_yield();
  ::sched_yield();
  if (policy_.spins == 0 || me_ < rank || Clock::now() < next_move_) return;
  next_move_ = Clock::now() + kBetweenMoves;
  leave_core(core);
}

void Board::await(Rank rank, const std::function<void(std::span<const Rank>)>& on_delay) {
  Line& theirs = line(rank, posted_);
  const auto there = [&] { return theirs.stamp.load(std::memory_order_acquire) == posted_; };
  transport::Patience patience(policy_);
  for (int pass = 1;; ++pass) {
    for (int look = 0; look < policy_.looks; ++look)
      if (there()) return;
    if (pass % kPassesBeforeLooking == 0) take_turns_with(rank, patience);
    if (!patience.pass()) break;
  }
  while (!there()) {
    const std::uint32_t old = theirs.stamp.load(std::memory_order_relaxed);
    theirs.sleepers.fetch_add(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (old != posted_ && !there()) transport::shm::futex_wait(theirs.stamp, old, kSlice);
    theirs.sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (!there()) delay(on_delay);
  }
}

// A rank may post and then leave in good order. So a PeerDied counts only if no post has arrived since `absent` was
// determined.
void Board::delay(const std::function<void(std::span<const Rank>)>& on_delay) {
  const std::vector<Rank> absent = missing();
  try {
    on_delay(absent);
  } catch (const PeerDied&) {
    if (missing() == absent) throw;
  }
}

std::vector<Rank> Board::missing() const {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < ranks_; ++rank)
    if (line(rank, posted_).stamp.load(std::memory_order_acquire) != posted_) ranks.push_back(rank);
  return ranks;
}

}  // namespace lockstep::collectives
