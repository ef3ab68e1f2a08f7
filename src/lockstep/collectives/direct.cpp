#include "lockstep/collectives/direct.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/collectives/choose.h"
#include "lockstep/collectives/reduce.h"
#include "lockstep/collectives/run.h"
#include "lockstep/transport.h"

namespace lockstep::collectives {
namespace {

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

bool reduces(Op op) { return op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter; }

// From this size on it pays off that two ranks copy together.
constexpr std::size_t kWorthSharing = std::size_t{128} << 10;

// From this size on a message, which two ranks copy together, is faster than a copy that one rank makes.
constexpr std::size_t kWorthAMessage = std::size_t{1} << 20;

// A range of elements. Ranges end at cache lines, so that no two ranks write to the same line.
struct Range {
  std::size_t begin;
  std::size_t size;
};
Range part_of(std::size_t count, std::size_t element, int parts, int index) {
  const std::size_t grain = 64 / element;
  const std::size_t lines = (count + grain - 1) / grain;
  const std::size_t begin = std::min(count, chunk_begin(lines, parts, index) * grain);
  return {begin, std::min(count, chunk_begin(lines, parts, index + 1) * grain) - begin};
}

}  // namespace

Direct::Direct(Board board, Group& group)
    : board_(std::move(board)),
      arena_(group.me, group.size()),
      group_(group),
      places_(static_cast<std::size_t>(group.size())),
      inputs_(static_cast<std::size_t>(group.size())),
      outputs_(static_cast<std::size_t>(group.size())),
      sources_(static_cast<std::size_t>(group.size())) {
  on_delay_ = [this](std::span<const Rank> awaited) {
    std::vector<Rank> needed;
    for (const Rank rank : awaited) needed.push_back(group_.world[index_of(rank)]);
    group_.transport->look_after(needed);
    group_.on_delay(awaited);
  };
}

// Posts this rank's note and checks the fingerprints of all ranks.
void Direct::open(const Fingerprint& fingerprint) {
  board_.next().fingerprint = fingerprint;
  synchronise();
  for (Rank rank = 0; rank < group_.size(); ++rank)
    if (const auto& theirs = board_.seen(rank).fingerprint; theirs != fingerprint)
      throw transport::WrongLabel(theirs.label(),
                                  {.message = fmt::format("rank {} has posted another collective", rank),
                                   .peer = group_.world[index_of(rank)]});
}

void Direct::run(const Call& call, const Fingerprint& fingerprint) {
  const int p = group_.size();
  const Rank me = group_.me;
  if (call.bytes() <= sizeof(Line::note)) {
    if (const std::size_t said = contribution_bytes(call, me); said > 0)
      std::memcpy(board_.next().note, call.input, said);
    open(fingerprint);
    return combine_posts(call, [&](Rank rank) { return board_.seen(rank).note; });
  }
  const Places mine = find(call);
  std::memcpy(board_.next().note, &mine, sizeof mine);
  if (travels_beside(call, mine))
    if (const std::size_t said = contribution_bytes(call, me); said > 0)
      std::memcpy(board_.next_room(call.bytes()), call.input, said);
  open(fingerprint);

  bool all_beside = true;
  for (Rank rank = 0; rank < p; ++rank) {
    const auto i = index_of(rank);
    Places& places = places_[i];
    std::memcpy(&places, board_.seen(rank).note, sizeof places);
    inputs_[i] = places.input != kPrivate ? arena_.address(places.input, rank) : nullptr;
    outputs_[i] = places.output != kPrivate ? arena_.address(places.output, rank) : nullptr;
    all_beside = all_beside && (travels_beside(call, places) || contribution_bytes(call, rank) == 0);
  }
  if (in_place(call)) return synchronise();
  if (all_beside) return combine_posts(call, [&](Rank rank) { return board_.seen_room(rank, call.bytes()); });
  // With 2 ranks one would be idle while the other fetches, but a message is copied by both.
  const bool one_way = p == 2 && (call.op == Op::broadcast || call.op == Op::scatter || call.op == Op::gather);
  if (!memories_.empty() && call.op != Op::all_reduce && call.op != Op::reduce &&
      !(one_way && call.bytes() >= kWorthAMessage)) {
    fetched(call);
    return synchronise();
  }
  if (reduces(call.op)) return staged(call);
  run_plan(make_plan(call.op, choose_messages(call.op, call.bytes(), p), (me - call.root + p) % p, p), call,
           fingerprint.label(), group_);
}

// Whether a rank with its buffers at these places copies what it contributes to the room beside its post. An all-reduce
// that does so makes every rank read all buffers, so it pays off only for a slot. In the other operations nobody reads
// more than it needs. Where the others may be able to write straight into this rank's output, it does not copy more
// than a slot. (In a gather only the root knows that, so the others copy in vain.)
bool Direct::travels_beside(const Call& call, const Places& places) const {
  if (places.input != kPrivate) return false;
  if (call.bytes() <= board_.slot_bytes()) return true;
  if (call.op == Op::all_reduce || call.op == Op::reduce || call.bytes() > board_.segment_bytes()) return false;
  const bool takes_all = call.op == Op::gather || call.op == Op::all_gather || call.op == Op::all_to_all;
  return !takes_all || places.output == kPrivate;
}

// How many bytes a rank contributes: its chunk, its whole buffer, or nothing.
std::size_t Direct::contribution_bytes(const Call& call, Rank rank) const {
  if (call.op == Op::gather || call.op == Op::all_gather)
    return chunk_size(call.count, group_.size(), rank) * call.element();
  return reduces(call.op) || call.op == Op::all_to_all || rank == call.root ? call.bytes() : 0;
}

Direct::Places Direct::find(const Call& call) const {
  const std::size_t chunk = chunk_size(call.count, group_.size(), group_.me) * call.element();
  const bool is_root = group_.me == call.root;
  const bool chunk_in = call.op == Op::gather || call.op == Op::all_gather;
  const bool chunk_out = call.op == Op::scatter || call.op == Op::reduce_scatter;
  Places places{kPrivate, kPrivate, reinterpret_cast<std::uint64_t>(call.input)};
  if (call.op != Op::scatter || is_root) places.input = arena_.find(call.input, chunk_in ? chunk : call.bytes());
  if (call.input == call.output)
    places.output = places.input;
  else if (call.op != Op::gather || is_root)
    places.output = arena_.find(call.output, chunk_out ? chunk : call.bytes());
  return places;
}

// Each rank takes what it needs from what the others have posted; `from` tells where that lies.
template <typename From>
void Direct::combine_posts(const Call& call, From from) {
  const int p = group_.size();
  const Rank me = group_.me;
  const std::size_t element = call.element();
  const auto place = [&](Rank rank) { return chunk_begin(call.count, p, rank) * element; };
  const auto room = [&](Rank rank) { return chunk_size(call.count, p, rank) * element; };
  switch (call.op) {
    case Op::barrier:
      return;
    case Op::all_reduce:
    case Op::reduce:
    case Op::reduce_scatter: {
      if (call.op == Op::reduce && me != call.root) return;
      const bool scattered = call.op == Op::reduce_scatter;
      for (Rank rank = 0; rank < p; ++rank) sources_[index_of(rank)] = from(rank) + (scattered ? place(me) : 0);
      std::byte* const destinations[] = {call.output};
      return reduce(destinations, sources_, scattered ? chunk_size(call.count, p, me) : call.count, call.dtype,
                    call.reduce, call.reduce == ReduceOp::mean ? p : 1);
    }
    case Op::broadcast:
      if (me != call.root) copy_bytes(call.output, from(call.root), call.bytes());
      return;
    case Op::scatter:
      return copy_bytes(call.output, from(call.root) + place(me), room(me));
    case Op::gather:
    case Op::all_gather:
      if (call.op == Op::gather && me != call.root) return;
      for (Rank rank = 0; rank < p; ++rank) copy_bytes(call.output + place(rank), from(rank), room(rank));
      return;
    case Op::all_to_all:
      for (Rank rank = 0; rank < p; ++rank) copy_bytes(call.output + place(rank), from(rank) + place(me), room(me));
      return;
  }
}

// Copies the chunk of `rank` from or to the root. That rank copies it. With 2 ranks the root would be idle meanwhile,
// so it copies half, if it can see the rank's buffer as well (`seen`).
void Direct::copy_together(Rank root, Rank rank, const std::byte* from, std::byte* to, std::size_t bytes,
                           bool seen) const {
  const bool shared = group_.size() == 2 && rank != root && seen && bytes >= kWorthSharing;
  const std::size_t first = shared ? bytes / 2 / 64 * 64 : bytes;
  if (group_.me == rank) copy_bytes(to, from, first);
  if (group_.me == root && shared) copy_bytes(to + first, from + first, bytes - first);
}

// Does the work in the arena, except for the last synchronisation. Returns false without doing anything if a buffer
// that it needs is not in the arena.
bool Direct::in_place(const Call& call) {
  const int p = group_.size();
  const Rank me = group_.me;
  const std::size_t element = call.element();
  const auto place = [&](Rank rank) { return chunk_begin(call.count, p, rank) * element; };
  const auto room = [&](Rank rank) { return chunk_size(call.count, p, rank) * element; };

  const auto all = [](const auto& addresses) {
    return std::all_of(addresses.begin(), addresses.end(), [](const std::byte* address) { return address != nullptr; });
  };
  const auto root = static_cast<std::size_t>(call.root);
  const auto sum = [&](Range range, std::span<std::byte* const> to) {
    for (std::size_t i = 0; i < sources_.size(); ++i) sources_[i] = inputs_[i] + range.begin * element;
    reduce(to, sources_, range.size, call.dtype, call.reduce, call.reduce == ReduceOp::mean ? p : 1);
  };

  switch (call.op) {
    case Op::barrier:
      return true;
    // region in_place
    case Op::all_reduce: {
      if (!all(inputs_)) return false;
      const Range range = part_of(call.count, element, p, me);
      for (auto& output : outputs_) output += range.begin * element;
      sum(range, outputs_);
      return true;
    }
    // endregion
    case Op::reduce: {  // each rank sums a part into the root's buffer
      if (!all(inputs_)) return false;
      const Range range = part_of(call.count, element, p, me);
      std::byte* const to[] = {outputs_[root] + range.begin * element};
      sum(range, to);
      return true;
    }
    case Op::reduce_scatter: {
      if (!all(inputs_)) return false;
      std::byte* const to[] = {call.output};
      sum({chunk_begin(call.count, p, me), chunk_size(call.count, p, me)}, to);
      return true;
    }
    case Op::broadcast: {  // each rank, also the root, copies a part to all others
      if (!all(outputs_)) return false;
      const Range range = part_of(call.count, element, p, me);
      for (std::byte* output : outputs_)
        copy_bytes(output + range.begin * element, outputs_[root] + range.begin * element, range.size * element);
      return true;
    }
    case Op::scatter:
      if (inputs_[root] == nullptr) return false;
      for (Rank rank = 0; rank < p; ++rank)
        copy_together(call.root, rank, inputs_[root] + place(rank), rank == me ? call.output : outputs_[index_of(rank)],
                      room(rank), outputs_[index_of(rank)] != nullptr);
      return true;
    case Op::gather:
      if (outputs_[root] == nullptr) return false;
      for (Rank rank = 0; rank < p; ++rank)
        copy_together(call.root, rank, rank == me ? call.input : inputs_[index_of(rank)], outputs_[root] + place(rank),
                      room(rank), inputs_[index_of(rank)] != nullptr);
      return true;
    case Op::all_gather:  // each rank writes its chunk to all ranks
      if (!all(outputs_)) return false;
      for (std::byte* output : outputs_) copy_bytes(output + place(me), call.input, room(me));
      return true;
    case Op::all_to_all:
      if (!all(outputs_)) return false;
      for (Rank rank = 0; rank < p; ++rank)
        copy_bytes(outputs_[index_of(rank)] + place(me), call.input + place(rank), room(rank));
      return true;
  }
  return false;
}

}  // namespace lockstep::collectives
