// Direct: the ranks share memory, so each rank reads what it needs where it lies, and nothing has to be sent.
//
//   all-reduce in the arena, 3 ranks     everyone posts "my buffer is here", and waits until all have
//                                        rank r sums part r of all three buffers and writes it into all three
//                                        everyone posts "done", and waits until all have
//
//              buffer 0  | c0 | c1 | c2 |
//              buffer 1  | c0 | c1 | c2 |          rank 1 reads and writes this column
//              buffer 2  | c0 | c1 | c2 |
//                               ^^
//
// This takes two synchronisations and 2ps bytes of memory traffic: every buffer is read once and written once, which is
// the minimum. A few bytes travel in the post itself, and some kilobytes outside the arena travel in a slot beside it:
// then every rank takes what it needs for itself, and one synchronisation is enough. Operations that do not combine
// whole buffers do so up to the size of a segment (512 KB). For larger buffers outside the arena, an all-reduce or
// reduce goes through segments that fit the cache (direct_staged.cpp); the other operations copy from the owners'
// memory (direct_fetched.cpp). Where the kernel forbids that, a reduce-scatter goes through the segments as well, and
// the rest travels as messages. With 2 ranks, a broadcast, scatter or gather of 1 MB or more travels as a
// message, because two ranks copy a message together.
//
// An element is summed in rank order, which gives the same bits as `ordered`.
//
// Not thread-safe: only one collective runs at a time. arena() may be used from any thread.
#pragma once

#include "lockstep/collectives/arena.h"
#include "lockstep/collectives/board.h"
#include "lockstep/collectives/call.h"
#include "lockstep/collectives/fingerprint.h"
#include "lockstep/transport/shm/peer_memory.h"

namespace lockstep::collectives {

class Direct {
 public:
  Direct(Board board, Group& group);

  // Throws WrongLabel if a rank has posted another fingerprint.
  void run(const Call& call, const Fingerprint& fingerprint);

  Arena& arena() { return arena_; }
  // Collective. If every rank can read the memory of every other rank, private buffers are copied from there from now
  // on. `memories` is indexed by rank.
  void try_memories(std::vector<transport::shm::PeerMemory> memories);

 private:
  // The content of a post: where the rank's buffers lie, in the arena and in its own memory.
  struct Places {
    Location input;
    Location output;
    std::uint64_t input_address;
  };
  static_assert(sizeof(Places) <= sizeof(Line::note));

  void open(const Fingerprint& fingerprint);
  void synchronise() { board_.synchronise(on_delay_); }
  bool travels_beside(const Call& call, const Places& places) const;
  std::size_t contribution_bytes(const Call& call, Rank rank) const;
  Places find(const Call& call) const;
  template <typename From>
  void combine_posts(const Call& call, From from);
  bool in_place(const Call& call);
  void copy_together(Rank root, Rank rank, const std::byte* from, std::byte* to, std::size_t bytes, bool seen) const;
  void staged(const Call& call);
  // Defined in direct_fetched.cpp:
  void fetched(const Call& call);
  void fetch(Rank rank, std::uint64_t address, std::byte* into, std::size_t bytes);
  void fetch_and_sum(const Call& call, std::size_t begin, std::size_t bytes, std::byte* into);
  [[noreturn]] void lose(Rank rank);

  Board board_;
  Arena arena_;
  Group& group_;
  std::function<void(std::span<const Rank>)> on_delay_;
  std::vector<transport::shm::PeerMemory> memories_;  // indexed by rank; empty if they can't all be read
  // About the running collective, indexed by rank: its post, its buffers in the arena (null if they are not there), and
  // the sources of a sum.
  std::vector<Places> places_;
  std::vector<std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
  std::vector<const std::byte*> sources_;
};

}  // namespace lockstep::collectives
