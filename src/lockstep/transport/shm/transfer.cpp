// The single copy: how a large message gets from the sender's memory to the receiver's (layout.h, Transfer).
//
//   sender                        slot                       receiver
//   offer: record in the queue    offered
//                                 taken, target         <--  pull: a receive was matched, or take_in
//   help_transfer: claims pieces  claimed, copied            continue_pulls: claims pieces
//   done at copied == total       received              <--  done at copied == total
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/transport/shm/shm_endpoint.h"

namespace lockstep::transport::shm {
namespace {

// How much of a transfer a side claims at a time. It is small enough that both sides share a 1 MB message evenly, and
// large enough that the cost of the system call does not matter.
constexpr std::size_t kTransferPiece = std::size_t{128} << 10;
// How many pieces are copied before other threads of this rank get their turn.
constexpr int kPiecesAtATime = 8;
// The message size from which it pays to wake a sleeping sender, so that it copies, too.
constexpr std::size_t kWorthWaking = std::size_t{1} << 20;
// How long a call that fails waits for a peer that has claimed a piece and not copied it.
constexpr auto kStopPatience = 2s;

// Claims the next piece and returns where it begins. Returns nothing if all pieces are claimed, or if a side has
// stopped the transfer. A claim that comes too late does not change `claimed`, so that `claimed` counts only bytes that
// are being copied or were copied.
std::optional<std::uint64_t> claim(Transfer& entry, std::uint64_t total) {
  std::uint64_t at = entry.claimed.load(std::memory_order_relaxed);
  while (at < total)
    if (entry.claimed.compare_exchange_weak(at, at + kTransferPiece, std::memory_order_relaxed)) return at;
  return std::nullopt;
}

}  // namespace

void ShmEndpoint::try_single_copy() {
  if (!allow_single_copy_) return;
  for (Rank peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const Card& card = layout_.card(peer);
    std::uint64_t word = 0;
    const bool reads = link(peer).memory.read(card.readable_at, writable_bytes_of(word)) &&
                       word == kTrialWord + static_cast<std::uint64_t>(peer);
    layout_.pair(peer, rank_).receiver_reads = reads ? 1 : 0;
    // Between threads of one process, writing always works. It is not tried there, because the thread sanitizer would
    // see every rank write the same word of its neighbour.
    const bool same_process = link(peer).process->is_this_process() && reads;
    const bool writes = same_process || link(peer).memory.write(card.writable_at, bytes_of(word));
    layout_.pair(rank_, peer).sender_writes = writes ? 1 : 0;
    if (!reads) log::info("rank {} can't read rank {}'s memory: large messages are copied twice", rank_, peer);
  }
}

bool ShmEndpoint::single_copy_to(Rank peer) const { return layout_.pair(rank_, peer).receiver_reads != 0; }

// --- the sender ---

bool ShmEndpoint::offer(Operation& operation) {
  for (std::uint16_t slot = 0; slot < kTransferSlots; ++slot) {
    Transfer& entry = transfer(rank_, operation.peer, slot);
    if ((link(operation.peer).slots_held >> slot & 1) != 0) continue;
    const auto state = entry.state.load(std::memory_order_acquire);
    if (state != Transfer::free && state != Transfer::received) continue;
    entry.claimed.store(0, std::memory_order_relaxed);
    entry.copied.store(0, std::memory_order_relaxed);
    entry.state.store(Transfer::offered, std::memory_order_release);
    if (!link(operation.peer)
             .out.push(
                 {RecordKind::offer, operation.tag, operation.bytes, reinterpret_cast<std::uint64_t>(operation.data),
                  slot, operation.label.empty() ? nullptr : &operation.label},
                 {})) {
      entry.state.store(Transfer::free, std::memory_order_relaxed);
      return false;
    }
    operation.slot = static_cast<std::int16_t>(slot);
    link(operation.peer).slots_held |= 1U << slot;
    ring(operation.peer);
    return false;
  }
  return false;  // all slots are in use; one will become free
}

// Copies the sender's share of a transfer. Completes the operation when all bytes are copied.
bool ShmEndpoint::help_transfer(Operation& operation) {
  Transfer& entry = transfer(rank_, operation.peer, static_cast<std::uint16_t>(operation.slot));
  const auto state = entry.state.load(std::memory_order_acquire);
  if (state != Transfer::taken && state != Transfer::received) return false;
  bool moved = false;
  const bool may_write = layout_.pair(rank_, operation.peer).sender_writes != 0;
  for (int i = 0; may_write && i < kPiecesAtATime; ++i) {
    const auto at = claim(entry, operation.bytes);
    if (!at) break;
    const std::size_t piece = std::min<std::size_t>(kTransferPiece, operation.bytes - *at);
    if (before_copy_) before_copy_();
    if (!link(operation.peer).memory.write(entry.target + *at, {operation.data + *at, piece})) {
      lose(operation.peer);
      return true;
    }
    moved = true;
    if (entry.copied.fetch_add(piece, std::memory_order_acq_rel) + piece == operation.bytes) ring(operation.peer);
  }
  if (entry.copied.load(std::memory_order_acquire) == operation.bytes) {
    release_slot(operation);
    complete(operation);
    moved = true;
  }
  return moved;
}

// Called when a peer's memory cannot be reached any more: the peer is gone, or about to be.
void ShmEndpoint::lose(Rank peer) {
  hear_failure(peer);  // the peer may have said why
  if (failed()) return;
  if (gone(peer, 200ms)) return peer_died(peer);
  peer_failed({peer, fmt::format("rank {} failed: its memory could not be copied", peer), Ending::failed});
}

// Stops a transfer: nobody claims more of it. When this function returns, the other side has finished what it had
// claimed, or is gone. That takes no longer than one piece, unless the peer is stopped between its claim and its copy.
// Such a peer gets kStopPatience. If it could still write into a buffer that the caller is about to get back
// (`writes_here`), this process ends: no error may leave behind memory that changes by itself. A peer that only reads
// is left alone, because what it reads belongs to a message that has failed.
void ShmEndpoint::stop_copying(Rank peer, Transfer& entry, std::size_t total, bool writes_here) {
  const std::uint64_t claimed = std::min<std::uint64_t>(entry.claimed.fetch_or(kStop) & ~kStop, total);
  const Deadline by = Deadline::in(kStopPatience);
  while (entry.copied.load(std::memory_order_acquire) < claimed) {
    if (gone(peer, 0ms)) return;
    if (by.passed()) break;
    sched_yield();
  }
  if (!writes_here || entry.copied.load(std::memory_order_acquire) >= claimed) return;
  const std::string text = fmt::format(
      "rank {}: rank {} has been copying into a buffer of a call that has failed, and has neither finished nor died "
      "within {:.3g} s; this process ends, because the buffer could still change; try: see whether rank {} is stopped",
      rank_, peer, by.seconds(), peer);
  leave(Cause{peer, text, Ending::failed});
  log::error("{}", text);
  std::_Exit(kExitTimedOut);
}

void ShmEndpoint::stop_transfers(Rank peer) {
  for (Incoming* message : std::exchange(link(peer).pulls, {}))
    stop_copying(peer, transfer(peer, rank_, message->offer->slot), message->total, true);
}

void ShmEndpoint::release_slot(Operation& operation) {
  link(operation.peer).slots_held &= ~(1U << operation.slot);
  operation.slot = -1;
}

// --- the receiver ---

void ShmEndpoint::pull(Rank peer, Incoming& message) {
  Transfer& entry = transfer(peer, rank_, message.offer->slot);
  Mailbox& box = mailbox(peer);
  if (message.discard) entry.claimed.store(message.total, std::memory_order_relaxed);  // so that nobody copies
  entry.target.store(reinterpret_cast<std::uint64_t>(message.destination()), std::memory_order_relaxed);
  auto expected = Transfer::offered;
  if (!entry.state.compare_exchange_strong(expected, Transfer::taken)) {  // the sender has given up
    entry.state.store(Transfer::free, std::memory_order_release);
    Operation* operation = message.receive;
    box.drop(message);
    if (operation != nullptr)
      if (Incoming* next = box.receive(*operation)) pull(peer, *next);
    return;
  }
  if (message.discard) {
    entry.copied.store(message.total, std::memory_order_release);
    entry.state.store(Transfer::received, std::memory_order_release);
    box.drop(message);
    notify();  // wakes a receive that failed because its size or label differs
    return ring(peer);
  }
  message.pulling = true;
  link(peer).pulls.push_back(&message);
  if (message.total >= kWorthWaking) ring(peer);
}

// Copies the receiver's share of the transfers from a peer.
bool ShmEndpoint::continue_pulls(Rank peer) {
  auto& pulls = link(peer).pulls;
  bool moved = false;
  for (std::size_t i = 0; i < pulls.size() && !failed();) {
    Incoming& message = *pulls[i];
    Transfer& entry = transfer(peer, rank_, message.offer->slot);
    std::byte* target = reinterpret_cast<std::byte*>(entry.target.load(std::memory_order_relaxed));
    for (int piece_count = 0; piece_count < kPiecesAtATime; ++piece_count) {
      const auto at = claim(entry, message.total);
      if (!at) break;
      const std::size_t piece = std::min<std::size_t>(kTransferPiece, message.total - *at);
      if (before_copy_) before_copy_();
      if (!link(peer).memory.read(message.offer->address + *at, {target + *at, piece})) {
        lose(peer);
        return true;
      }
      entry.copied.fetch_add(piece, std::memory_order_acq_rel);
      moved = true;
    }
    if (entry.copied.load(std::memory_order_acquire) < message.total) {
      ++i;
      continue;
    }
    pulls.erase(pulls.begin() + static_cast<std::ptrdiff_t>(i));
    entry.state.store(Transfer::received, std::memory_order_release);
    message.offer.reset();
    message.pulling = false;
    arrived(peer, message, message.total);
    ring(peer);
    moved = true;
  }
  return moved;
}

// Called before this rank leaves, because senders may be writing to its memory at this moment.
void ShmEndpoint::finish_pulls() {
  const Lock lock(mutex_);
  const Deadline by = Deadline::in(1s);
  for (Rank peer = 0; peer < size_; ++peer)
    while (!link(peer).pulls.empty() && !failed() && !by.passed())
      if (!continue_pulls(peer)) sched_yield();
}

void ShmEndpoint::take_in() {
  for (Rank peer = 0; peer < size_; ++peer) {
    if (!mailbox(peer).has_arrivals()) continue;
    for (Incoming* message : mailbox(peer).unclaimed_offers()) {
      message->keep(peer);
      pull(peer, *message);
    }
  }
}

}  // namespace lockstep::transport::shm
