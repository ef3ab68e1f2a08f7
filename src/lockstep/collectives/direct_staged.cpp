// Sums of private buffers. They pass through shared segments that stay in the cache; each rank has two of them, which
// it uses in turn.
//
//   segment i of the buffer is cut into a part for each rank; rank r sums part r
//
//     copy in     own parts of the others         into own segment            (segment i)
//     -- synchronise --
//     copy out    the sums of the others          from their segments         (segment i-1)
//     sum         part r: own, and the others'    into own buffer and segment (segment i)
//
// Each synchronisation serves two segments at once: it tells that segment i is copied in and that segment i-1 is
// summed. A rank's own part never passes through shared memory on its way in.
//
// Which of a rank's two segments is meant follows from the number of the post that opened the collective, so that the
// last one, which others still read after the last post, is not the one that belongs to the next post.
#include <algorithm>
#include <cstring>

#include "lockstep/collectives/direct.h"
#include "lockstep/collectives/reduce.h"

namespace lockstep::collectives {
namespace {

// Bytes of each rank's part that are summed at a time; they fit the first-level cache.
constexpr std::size_t kStagedPiece = std::size_t{16} << 10;

// One private buffer on its way through the segments.
class StagedReduction {
 public:
  StagedReduction(const Call& call, const Board& board, Group& group)
      : call_(call),
        board_(board),
        p_(group.size()),
        me_(group.me),
        element_(call.element()),
        opened_(board.posted()),
        fetched_(group.work.get(kStagedPiece * static_cast<std::size_t>(p_))) {
    // Each part has room for the same number of elements, which is a whole number of cache lines.
    room_ = std::max<std::size_t>(board.segment_bytes() / static_cast<std::size_t>(p_) / 64 * 64 / element_, 1);
    const std::size_t longest = chunk_size(call.count, p_, 0);
    segments_ = (longest + room_ - 1) / room_;
    for (Rank rank = 0; rank < p_; ++rank) sources_.push_back(fetched(rank));
  }

  std::size_t segments() const { return segments_; }

  void copy_in(std::size_t i) const {
    for (int k = 1; k < p_; ++k) {  // the next rank's part first, so that ranks do not all use one place at once
      const Rank owner = (me_ + k) % p_;
      const auto [begin, size] = part(owner, i);
      if (size > 0) std::memcpy(shared(me_, owner, i), call_.input + begin * element_, size * element_);
    }
  }

  // Fetches piece by piece with memcpy, which reads lines that another core has written faster than arithmetic does,
  // and writes lines without reading what was there.
  void sum(std::size_t i) {
    const auto [begin, size] = part(me_, i);
    const bool keeps = call_.op != Op::reduce || me_ == call_.root;
    std::byte* own =
        call_.op == Op::reduce_scatter ? call_.output + i * room_ * element_ : call_.output + begin * element_;
    const std::size_t piece = kStagedPiece / element_;
    for (std::size_t at = 0; at < size; at += piece) {
      const std::size_t n = std::min(piece, size - at);
      for (Rank rank = 0; rank < p_; ++rank)
        if (rank != me_) std::memcpy(fetched(rank), shared(rank, me_, i) + at * element_, n * element_);
      sources_[static_cast<std::size_t>(me_)] = call_.input + (begin + at) * element_;
      std::byte* const to[] = {keeps ? own + at * element_ : fetched(me_)};
      reduce(to, sources_, n, call_.dtype, call_.reduce, call_.reduce == ReduceOp::mean ? p_ : 1);
      if (call_.op != Op::reduce_scatter) std::memcpy(shared(me_, me_, i) + at * element_, to[0], n * element_);
    }
  }

  void copy_out(std::size_t i) const {
    if (call_.op == Op::reduce_scatter || (call_.op == Op::reduce && me_ != call_.root)) return;
    for (int k = 1; k < p_; ++k) {
      const Rank owner = (me_ + k) % p_;
      const auto [begin, size] = part(owner, i);
      if (size > 0) std::memcpy(call_.output + begin * element_, shared(owner, owner, i), size * element_);
    }
  }

 private:
  struct Range {
    std::size_t begin;
    std::size_t size;
  };
  // Part `owner` of segment i: the i-th stretch of that rank's chunk.
  Range part(Rank owner, std::size_t i) const {
    const std::size_t chunk = chunk_size(call_.count, p_, owner);
    const std::size_t done = std::min(chunk, i * room_);
    return {chunk_begin(call_.count, p_, owner) + done, std::min(room_, chunk - done)};
  }
  std::byte* fetched(Rank rank) const { return fetched_ + index_of(rank) * kStagedPiece; }
  std::byte* shared(Rank rank, Rank owner, std::size_t i) const {
    return board_.segment(rank, opened_ + static_cast<std::uint32_t>(i)) + index_of(owner) * room_ * element_;
  }

  const Call& call_;
  const Board& board_;
  const int p_;
  const Rank me_;
  const std::size_t element_;
  const std::uint32_t opened_;  // the number of the post that opened the collective
  std::byte* const fetched_;    // one piece of each rank's part
  std::vector<const std::byte*> sources_;
  std::size_t room_;
  std::size_t segments_;
};

}  // namespace

void Direct::staged(const Call& call) {
  StagedReduction reduction(call, board_, group_);
  const std::size_t n = reduction.segments();
  for (std::size_t i = 0; i < n; ++i) {
    reduction.copy_in(i);
    synchronise();
    if (i > 0) reduction.copy_out(i - 1);
    reduction.sum(i);
  }
  synchronise();
  if (n > 0) reduction.copy_out(n - 1);
}

}  // namespace lockstep::collectives
