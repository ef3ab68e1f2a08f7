// What lies where in the region that the ranks of a host share for messages.
//
//   | Card of each rank | control and transfer slots of each ordered pair | cells of each ordered pair |
#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/base/types.h"
#include "lockstep/transport/shm/queue.h"
#include "lockstep/transport/shm/region.h"
#include "lockstep/transport/transport.h"

namespace lockstep::transport::shm {

enum class Presence : std::uint32_t { coming, here, left, failed };

// What a rank shows of itself. Only that rank writes it, but for the bell, which everyone rings.
struct alignas(64) Card {
  std::atomic<Presence> presence;
  // The bell: a futex word, and how many threads of this rank sleep on it.
  std::atomic<std::uint32_t> rings;
  std::atomic<std::uint32_t> sleepers;
  // For peer_memory.h: two words of private memory by which peers find out whether they can reach it.
  std::atomic<std::uint64_t> readable_at;
  std::atomic<std::uint64_t> writable_at;
  // For messages: what this rank does.
  alignas(64) std::atomic<std::uint64_t> sends;
  std::atomic<std::int32_t> waiting_for;  // a peer's rank, or -1
  // Once presence is failed, and written before that: who is to blame, and how it ended.
  std::int32_t culprit;
  Transport::Ending ending;
  char failure[952];
};

// A large message is copied straight from the sender's memory to the receiver's by both: each claims the next piece
// until none is left. Done when `copied` reaches the total.
struct alignas(64) Transfer {
  // The sender: free or received -> offered -> withdrawn. The receiver: offered -> taken -> received, withdrawn ->
  // free.
  enum State : std::uint32_t { free, offered, taken, received, withdrawn };
  std::atomic<State> state;
  std::atomic<std::uint64_t> target;   // where the receiver wants it; set before taken. 0: nowhere, let it go by
  std::atomic<std::uint64_t> claimed;  // bytes that somebody copies or has copied; with kStop: no more, please
  std::atomic<std::uint64_t> copied;   // bytes that are there
};
constexpr std::uint64_t kStop = std::uint64_t{1} << 62;
constexpr int kTransferSlots = 16;

// What lies at Card::readable_at, plus the rank.
constexpr std::uint64_t kTrialWord = 0x10c5'7e90'aced'0001;

struct Pair {
  QueueControl control;
  alignas(64) std::atomic<std::uint32_t> receiver_reads;  // the receiver can read the sender's memory
  std::atomic<std::uint32_t> sender_writes;               // and the sender write the receiver's
  Transfer transfers[kTransferSlots];
};

class Layout {
 public:
  Layout(std::byte* base, int ranks, std::size_t queue_bytes) : base_(base), ranks_(ranks), queue_bytes_(queue_bytes) {}

  static std::size_t bytes_needed(int ranks, std::size_t queue_bytes) {
    const auto n = static_cast<std::size_t>(ranks);
    return n * sizeof(Card) + n * n * (sizeof(Pair) + queue_bytes);
  }
  // About 8 MiB of queues in all: 256 KiB each for few ranks, never less than 16 KiB.
  static std::size_t default_queue_bytes(int ranks) {
    std::size_t bytes = std::size_t{256} << 10;
    while (bytes > (std::size_t{16} << 10) && bytes * static_cast<std::size_t>(ranks * ranks) > (std::size_t{8} << 20))
      bytes /= 2;
    return bytes;
  }

  Card& card(Rank rank) const { return reinterpret_cast<Card*>(base_)[rank]; }
  Pair& pair(Rank from, Rank to) const { return reinterpret_cast<Pair*>(base_ + pairs_offset())[number(from, to)]; }
  Record* cells(Rank from, Rank to) const {
    std::byte* all = base_ + pairs_offset() + static_cast<std::size_t>(ranks_ * ranks_) * sizeof(Pair);
    return reinterpret_cast<Record*>(all + number(from, to) * queue_bytes_);
  }
  std::size_t cell_count() const { return queue_bytes_ / kCellBytes; }

 private:
  std::size_t pairs_offset() const { return static_cast<std::size_t>(ranks_) * sizeof(Card); }
  std::size_t number(Rank from, Rank to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(to);
  }
  std::byte* base_;
  int ranks_;
  std::size_t queue_bytes_;
};

}  // namespace lockstep::transport::shm
