#include "lockstep/transport/shm/shm_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "lockstep/base/clock.h"
#include "lockstep/base/cpu.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/transport/shm/futex.h"

namespace lockstep::transport::shm {
namespace {

// The number of records that are taken from a queue before the caller can look at its own message and its deadline
// again.
constexpr int kRecordsAtATime = 256;

}  // namespace

ShmEndpoint::ShmEndpoint(const rendezvous::Meeting& meeting, std::shared_ptr<Region> region, std::size_t queue_bytes,
                         const Options& options, const EndpointCallbacks& callbacks)
    : Endpoint(meeting.me().rank, meeting.me().size, options.timeout,
               WaitPolicy::for_ranks(meeting.me().size, allowed_cores()), callbacks),
      region_(std::move(region)),
      layout_(region_->data(), size_, queue_bytes),
      allow_single_copy_(options.shm_copy == ShmCopy::automatic),
      single_copy_from_(options.single_copy_from),
      before_copy_(options.before_copy) {
  for (const rendezvous::Peer& peer : meeting.peers()) {
    const auto process = PeerProcess::of(peer);
    Link link{Producer(&layout_.pair(rank_, peer.rank).control, layout_.cells(rank_, peer.rank), layout_.cell_count()),
              Consumer(&layout_.pair(peer.rank, rank_).control, layout_.cells(peer.rank, rank_), layout_.cell_count()),
              PeerMemory(process),
              process,
              {}};
    links_.push_back(std::move(link));
  }
  Card& card = layout_.card(rank_);
  readable_word_ = kTrialWord + static_cast<std::uint64_t>(rank_);
  card.readable_at = reinterpret_cast<std::uint64_t>(&readable_word_);
  card.writable_at = reinterpret_cast<std::uint64_t>(&writable_word_);
  card.waiting_for = -1;
  card.presence = Presence::here;
}

ShmEndpoint::~ShmEndpoint() {
  stop_helper();
  if (in_forked_child()) return;
  finish_pulls();
  const auto why = cause();
  fail_outstanding();
  leave(why);
}

void ShmEndpoint::leave(const std::optional<Cause>& cause) noexcept {
  Card& card = layout_.card(rank_);
  if (card.presence != Presence::here) return;
  if (cause) {
    card.culprit = cause->rank;
    card.ending = cause->ending;
    const std::size_t length = std::min(cause->text.size(), sizeof card.failure - 1);
    std::memcpy(card.failure, cause->text.data(), length);
    card.failure[length] = '\0';
  }
  card.presence = cause ? Presence::failed : Presence::left;
  for (Rank peer = 0; peer < size_; ++peer)
    if (peer != rank_) ring(peer);
}

// --- sending ---

void ShmEndpoint::start_send(Operation& operation) {
  layout_.card(rank_).sends.store(++sends_started_, std::memory_order_relaxed);
  auto& queued = sends(operation.peer);
  if (queued.empty() && hand_over(operation)) return;
  queued.push_back(&operation);
}

// Gives the message to the receiver as far as there is room. True if the send is complete; an offer is not complete.
bool ShmEndpoint::hand_over(Operation& operation) {
  const Rank peer = operation.peer;
  if (operation.bytes >= single_copy_from_ && operation.moved == 0 && single_copy_to(peer)) return offer(operation);
  Producer& out = link(peer).out;
  const std::size_t max_piece = out.max_piece();
  do {
    const std::size_t piece = std::min(max_piece, operation.bytes - operation.moved);
    const Label* label = operation.moved == 0 && !operation.label.empty() ? &operation.label : nullptr;
    if (!out.push({RecordKind::piece, operation.tag, operation.bytes, 0, 0, label},
                  {operation.data + operation.moved, piece}))
      return false;
    operation.moved += piece;
    ring(peer);
  } while (operation.moved < operation.bytes);
  complete(operation);
  return true;
}

// Continues the queued sends. It helps to copy messages that were offered, and pushes the others until one does not
// fit.
bool ShmEndpoint::continue_sends(Rank peer) {
  auto& queued = sends(peer);
  bool moved = false;
  bool stuck = false;
  for (std::size_t i = 0; i < queued.size();) {
    Operation& operation = *queued[i];
    bool done = false;
    if (operation.slot >= 0) {
      moved |= help_transfer(operation);
      if (failed()) return true;  // the peer died, so this list is empty now
      done = !operation.pending();
    } else if (!stuck) {
      const std::size_t before = operation.moved;
      done = hand_over(operation);
      moved |= done || operation.moved != before || operation.slot >= 0;
      stuck = !done && operation.slot < 0;
    }
    if (done) {
      queued.erase(queued.begin() + static_cast<std::ptrdiff_t>(i));
      notify();
    } else {
      ++i;
    }
  }
  link(peer).out.set_starved(stuck);
  return moved;
}

bool ShmEndpoint::forget_send(Operation& operation) {
  std::erase(sends(operation.peer), &operation);
  if (operation.slot < 0) return operation.moved > 0;
  Transfer& entry = transfer(rank_, operation.peer, static_cast<std::uint16_t>(operation.slot));
  release_slot(operation);
  auto expected = Transfer::offered;
  if (entry.state.compare_exchange_strong(expected, Transfer::withdrawn)) return false;
  stop_copying(operation.peer, entry, operation.bytes, false);
  return true;
}

// --- receiving ---

bool ShmEndpoint::drain(Rank peer) {
  Consumer& in = link(peer).in;
  bool moved = false;
  for (int records = 0; records < kRecordsAtATime; ++records) {
    const Record* record = in.front();
    if (record == nullptr) break;
    take(peer, *record);
    in.pop();
    moved = true;
  }
  if (moved) std::atomic_thread_fence(std::memory_order_seq_cst);  // its counterpart is in Producer::set_starved
  if (in.producer_starved()) ring(peer);
  return moved;
}

void ShmEndpoint::take(Rank peer, const Record& record) {
  Mailbox& box = mailbox(peer);
  if (record.kind == RecordKind::offer) {
    Incoming& message = box.offered(record.tag, record.total, record.label(), {record.address, record.slot});
    if (message.receive != nullptr || message.discard) pull(peer, message);
    return;
  }
  if (record.piece == record.total && !box.has_arrivals()) {  // the common case: straight into the receive's buffer
    if (Operation* operation = box.take_posted(record.tag)) {
      if (accepts(*operation, record.label(), record.total)) {
        if (record.total > 0) std::memcpy(operation->data, record.data(), record.total);
        box.count_received();
        finished(*operation);
      } else {
        notify();
      }
      return;
    }
  }
  Incoming& message = box.message_for(record.tag, record.total, record.label());
  if (std::byte* destination = message.destination(); destination != nullptr && record.piece > 0)
    std::memcpy(destination, record.data(), record.piece);
  arrived(peer, message, record.piece);
}

// --- waiting ---

bool ShmEndpoint::progress_with(Rank peer) {
  bool moved = drain(peer);
  if (!link(peer).pulls.empty()) moved |= continue_pulls(peer);
  if (!sends(peer).empty() && !failed()) moved |= continue_sends(peer);
  return moved && !failed();
}

// Rings a peer's bell, but only if a thread of the peer sleeps. The fence orders what was published before the look at
// `sleepers`. Its counterpart is the fence in sleep(), where a thread counts itself as a sleeper before it looks at the
// queues again.
void ShmEndpoint::ring(Rank peer) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Card& card = layout_.card(peer);
  if (card.sleepers.load(std::memory_order_relaxed) == 0) return;
  card.rings.fetch_add(1, std::memory_order_relaxed);
  futex_wake_all(card.rings);
}

void ShmEndpoint::interrupt_sleep() { ring(rank_); }

void ShmEndpoint::sleep(Lock& lock, Duration at_most) {
  Card& card = layout_.card(rank_);
  const std::uint32_t rings = card.rings.load(std::memory_order_relaxed);
  card.sleepers.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!progress(-1)) {  // looks for what was published before we counted ourselves
    lock.unlock();
    futex_wait(card.rings, rings, at_most);
    lock.lock();
  }
  card.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void ShmEndpoint::after_sleep() {
  progress(-1);
  // Failures come first, because a rank that leaves after another failed must not be taken for the cause.
  for (Rank peer = 0; peer < size_; ++peer) hear_failure(peer);
  for (Rank peer = 0; peer < size_; ++peer) hear_goodbye(peer);
}

void ShmEndpoint::note_waiting(Rank peer) { layout_.card(rank_).waiting_for.store(peer, std::memory_order_relaxed); }

void ShmEndpoint::hear_failure(Rank peer) {
  const Card& card = layout_.card(peer);
  if (peer != rank_ && card.presence.load(std::memory_order_acquire) == Presence::failed)
    peer_failed({card.culprit, card.failure, card.ending});
}

void ShmEndpoint::hear_goodbye(Rank peer) {
  if (peer == rank_ || has_left(peer) || failed()) return;
  if (layout_.card(peer).presence.load(std::memory_order_acquire) != Presence::left) return;
  while (progress_with(peer)) {  // what it sent before it left still counts
  }
  peer_left(peer);
}

void ShmEndpoint::check_peers() {
  std::vector<Rank> dead;  // found before the cards are read, because a rank may say goodbye and then end
  for (Rank peer = 0; peer < size_; ++peer)
    if (peer != rank_ && gone(peer, 0ms)) dead.push_back(peer);
  for (Rank peer = 0; peer < size_; ++peer) hear_failure(peer);
  for (Rank peer = 0; peer < size_; ++peer) hear_goodbye(peer);
  for (const Rank peer : dead) peer_died(peer);
}

// Whether a peer's process has ended. Waits for that for at most `patience`. Ranks that are threads of this process
// never count as gone.
bool ShmEndpoint::gone(Rank peer, std::chrono::milliseconds patience) const {
  return links_[index_of(peer)].process->has_ended(patience);
}

std::string ShmEndpoint::census() {
  std::string text = "Ranks:";
  for (Rank peer = 0; peer < size_; ++peer) {
    const Card& card = layout_.card(peer);
    const int waiting_for = card.waiting_for.load(std::memory_order_relaxed);
    text += fmt::format("{} {} has begun {} sends and {}", peer == 0 ? "" : ",", peer,
                        card.sends.load(std::memory_order_relaxed),
                        waiting_for < 0 ? "is not waiting" : fmt::format("waits for rank {}", waiting_for));
  }
  return text;
}

}  // namespace lockstep::transport::shm
