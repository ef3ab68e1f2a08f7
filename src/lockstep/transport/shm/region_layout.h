// The layout of the region that the ranks of a host share for messages.
//
//   | Card of each rank | control and transfer slots of each ordered pair | cells of each ordered pair |
#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/transport.h"
#include "lockstep/transport/shm/queue.h"
#include "lockstep/transport/shm/region.h"
#include "lockstep/types.h"

namespace lockstep::transport::shm {

enum class Presence : std::uint32_t { coming, here, left, failed };

// What a rank shows of itself to the others. Only that rank writes it, except for the bell, which every rank may ring.
struct alignas(64) Card {
  std::atomic<Presence> presence;
  // The bell: a futex word, and the number of threads of this rank that sleep on it.
  std::atomic<std::uint32_t> rings;
  std::atomic<std::uint32_t> sleepers;
  // The addresses of two words in this rank's private memory. Peers try to read the one and to write the other, to find
  // out whether they can reach this memory (peer_memory.h).
  std::atomic<std::uint64_t> readable_at;
  std::atomic<std::uint64_t> writable_at;
  // What this rank is doing, for the text of timeouts.
  alignas(64) std::atomic<std::uint64_t> sends;
  std::atomic<std::int32_t> waiting_for;  // a peer's rank, or -1
  // Who is to blame for a failure, and how it ended. Written before `presence` becomes failed, and valid only then.
  std::int32_t culprit;
  Transport::Ending ending;
  char failure[952];
};

// A large message that is copied straight from the sender's memory to the receiver's, by both of them. Each claims the
// next piece until none is left. The transfer is done when `copied` reaches the size of the message.
struct alignas(64) Transfer {
  // The sender changes free or received to offered, and offered to withdrawn. The receiver changes offered to taken,
  // taken to received, and withdrawn to free.
  enum State : std::uint32_t { free, offered, taken, received, withdrawn };
  std::atomic<State> state;
  std::atomic<std::uint64_t> target;   // where the receiver wants the message; set before taken; 0 if it is discarded
  std::atomic<std::uint64_t> claimed;  // bytes that are being copied or were copied; with kStop, nobody may claim more
  std::atomic<std::uint64_t> copied;   // bytes that were copied
};
constexpr std::uint64_t kStop = std::uint64_t{1} << 62;
constexpr int kTransferSlots = 16;

// The word at Card::readable_at is this number plus the rank.
constexpr std::uint64_t kTrialWord = 0x10c5'7e90'aced'0001;

// What an ordered pair of ranks, a sender and a receiver, shares besides the cells of its queue.
struct Pair {
  QueueControl control;
  alignas(64) std::atomic<std::uint32_t> receiver_reads;  // the receiver can read the sender's memory
  std::atomic<std::uint32_t> sender_writes;               // the sender can write the receiver's memory
  Transfer transfers[kTransferSlots];
};

class RegionLayout {
 public:
  RegionLayout(std::byte* base, int ranks, std::size_t queue_bytes)
      : base_(base), ranks_(ranks), queue_bytes_(queue_bytes) {}

  static std::size_t bytes_needed(int ranks, std::size_t queue_bytes) {
    const auto n = static_cast<std::size_t>(ranks);
    return n * sizeof(Card) + n * n * (sizeof(Pair) + queue_bytes);
  }
  // 256 KiB per queue for few ranks. For more ranks less, so that all queues together have about 8 MiB, but never less
  // than 16 KiB.
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
