#include "lockstep/collectives/direct.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/collectives/choose.h"
#include "lockstep/collectives/reduce.h"
#include "lockstep/collectives/run.h"

namespace lockstep::collectives {
namespace {

// What a large collective's post says: where the rank's buffers lie.
struct Places {
  Location input;
  Location output;
};
static_assert(sizeof(Places) <= sizeof(Line::note));

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

bool reduces(Op op) { return op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter; }

// Element ranges that end at cache lines, so that no two ranks write to the same one.
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

void Direct::run(const Call& call, const transport::Label& fingerprint) {
  if (call.bytes() <= board_.slot_bytes())
    small(call, fingerprint);
  else
    large(call, fingerprint);
}

// Posts this rank's note and checks everyone's fingerprint.
void Direct::open(const transport::Label& fingerprint) {
  board_.next().fingerprint = fingerprint;
  synchronise();
  for (Rank rank = 0; rank < party_.size(); ++rank)
    if (const auto& theirs = board_.seen(rank).fingerprint; theirs != fingerprint)
      throw transport::WrongLabel(party_.world[static_cast<std::size_t>(rank)], theirs,
                                  fmt::format("rank {} has posted another collective", rank));
}

// --- small: everyone posts what it has, and takes what it needs from what the others have posted ---

void Direct::small(const Call& call, const transport::Label& fingerprint) {
  const int p = party_.size();
  const Rank me = party_.me;
  const std::size_t element = call.element();
  const auto place = [&](Rank rank) { return chunk_begin(call.count, p, rank) * element; };
  const auto room = [&](Rank rank) { return chunk_size(call.count, p, rank) * element; };

  // What this rank has to say: its chunk, its whole buffer, or nothing.
  std::size_t said = 0;
  if (call.op == Op::gather || call.op == Op::all_gather)
    said = room(me);
  else if (reduces(call.op) || call.op == Op::all_to_all || me == call.root)
    said = call.bytes();
  const bool in_note = call.bytes() <= sizeof(Line::note);
  if (said > 0) std::memcpy(in_note ? board_.next().note : board_.next_slot(), call.input, said);
  open(fingerprint);
  const auto from = [&](Rank rank) { return in_note ? board_.seen(rank).note : board_.seen_slot(rank); };

  switch (call.op) {
    case Op::barrier:
      return;
    case Op::all_reduce:
    case Op::reduce:
    case Op::reduce_scatter: {
      if (call.op == Op::reduce && me != call.root) return;
      const bool scattered = call.op == Op::reduce_scatter;
      std::array<const std::byte*, 64> few;
      std::vector<const std::byte*> many(p > 64 ? static_cast<std::size_t>(p) : 0);
      const std::span<const std::byte*> sources =
          p > 64 ? std::span(many) : std::span(few).first(static_cast<std::size_t>(p));
      for (Rank rank = 0; rank < p; ++rank)
        sources[static_cast<std::size_t>(rank)] = from(rank) + (scattered ? place(me) : 0);
      std::byte* const destinations[] = {call.output};
      return reduce(destinations, sources, scattered ? chunk_size(call.count, p, me) : call.count, call.dtype,
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

// --- large: everyone posts where its buffers are ---

void Direct::large(const Call& call, const transport::Label& fingerprint) {
  const int p = party_.size();
  const std::size_t chunk = chunk_size(call.count, p, party_.me) * call.element();
  const bool chunk_in = call.op == Op::gather || call.op == Op::all_gather;
  const bool chunk_out = call.op == Op::scatter || call.op == Op::reduce_scatter;
  const bool is_root = party_.me == call.root;
  const bool has_input = call.op != Op::scatter || is_root;
  const bool has_output = call.op != Op::gather || is_root;
  const Places mine{has_input ? arena_.find(call.input, chunk_in ? chunk : call.bytes()) : kPrivate,
                    has_output ? arena_.find(call.output, chunk_out ? chunk : call.bytes()) : kPrivate};
  std::memcpy(board_.next().note, &mine, sizeof mine);
  open(fingerprint);
  if (in_place(call)) return synchronise();
  if (reduces(call.op)) return staged(call);
  run_plan(make_plan(call.op, choose_messages(call.op, call.bytes(), p), (party_.me - call.root + p) % p, p), call,
           fingerprint, party_);
}

// True when the buffers that it takes are in the arena, and the work is done; only the last synchronisation is missing.
bool Direct::in_place(const Call& call) {
  const int p = party_.size();
  const Rank me = party_.me;
  const std::size_t element = call.element();
  const auto place = [&](Rank rank) { return chunk_begin(call.count, p, rank) * element; };
  const auto room = [&](Rank rank) { return chunk_size(call.count, p, rank) * element; };

  std::vector<std::byte*> inputs(static_cast<std::size_t>(p));
  std::vector<std::byte*> outputs(static_cast<std::size_t>(p));
  bool all_inputs = true;
  bool all_outputs = true;
  for (Rank rank = 0; rank < p; ++rank) {
    Places places{};
    std::memcpy(&places, board_.seen(rank).note, sizeof places);
    const auto i = static_cast<std::size_t>(rank);
    if (places.input != kPrivate) inputs[i] = arena_.address(places.input, rank);
    if (places.output != kPrivate) outputs[i] = arena_.address(places.output, rank);
    all_inputs = all_inputs && inputs[i] != nullptr;
    all_outputs = all_outputs && outputs[i] != nullptr;
  }
  const auto root = static_cast<std::size_t>(call.root);
  const std::vector<const std::byte*> sources(inputs.begin(), inputs.end());
  const auto sum = [&](Range range, std::span<std::byte* const> to) {
    std::vector<const std::byte*> from(sources);
    for (auto& source : from) source += range.begin * element;
    reduce(to, from, range.size, call.dtype, call.reduce, call.reduce == ReduceOp::mean ? p : 1);
  };

  switch (call.op) {
    case Op::barrier:
      return true;
    case Op::all_reduce: {
      if (!all_inputs) return false;
      const Range range = part_of(call.count, element, p, me);
      for (auto& output : outputs) output += range.begin * element;
      sum(range, outputs);
      return true;
    }
    case Op::reduce: {  // everyone sums a part, into the root's buffer
      if (!all_inputs) return false;
      const Range range = part_of(call.count, element, p, me);
      std::byte* const to[] = {outputs[root] + range.begin * element};
      sum(range, to);
      return true;
    }
    case Op::reduce_scatter: {
      if (!all_inputs) return false;
      std::byte* const to[] = {call.output};
      sum({chunk_begin(call.count, p, me), chunk_size(call.count, p, me)}, to);
      return true;
    }
    case Op::broadcast: {  // everyone, the root too, copies a part to all others
      if (!all_outputs) return false;
      const Range range = part_of(call.count, element, p, me);
      for (const auto& output : outputs)
        copy_bytes(output + range.begin * element, outputs[root] + range.begin * element, range.size * element);
      return true;
    }
    case Op::scatter:
      if (inputs[root] == nullptr) return false;
      copy_bytes(call.output, inputs[root] + place(me), room(me));
      return true;
    case Op::gather:
      if (outputs[root] == nullptr) return false;
      copy_bytes(outputs[root] + place(me), call.input, room(me));
      return true;
    case Op::all_gather:  // everyone puts its chunk everywhere
      if (!all_outputs) return false;
      for (const auto& output : outputs) copy_bytes(output + place(me), call.input, room(me));
      return true;
    case Op::all_to_all:
      if (!all_outputs) return false;
      for (Rank rank = 0; rank < p; ++rank)
        copy_bytes(outputs[static_cast<std::size_t>(rank)] + place(me), call.input + place(rank), room(rank));
      return true;
  }
  return false;
}

}  // namespace lockstep::collectives
