// How an endpoint fails: who is to blame, who must be told, and what the caller sees.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/one_line.h"
#include "lockstep/error.h"
#include "lockstep/transport/endpoint.h"

namespace lockstep::transport {

// Removes the operation from all lists. True if part of its message had moved: then the caller must end everything,
// because the peer may still write to the buffer.
bool Endpoint::abandon(Operation& operation) {
  return operation.kind == Operation::Kind::send ? forget_send(operation) : mailbox(operation.peer).forget(operation);
}

// Gives up an operation of a swap, which lies on the stack of a call that ends now.
void Endpoint::give_up(Operation& operation, const std::exception_ptr& why) {
  if (!operation.pending()) return;
  const bool half_way = abandon(operation);
  fail(operation, why);
  if (half_way && !failure_) end_everything(why);
}

void Endpoint::time_out(Lock& lock, Operation& operation) {
  ErrorFacts facts = operation.facts(
      rank_,
      fmt::format("timed out after {:.3g} s. {}", std::chrono::duration<double>(operation.timeout).count(), census()));
  facts.hint =
      fmt::format("look at rank {}: is it stopped, or busy elsewhere? LOCKSTEP_TIMEOUT waits longer", operation.peer);
  const TimedOut error(std::move(facts));
  const bool half_way = abandon(operation);
  fail(operation, std::make_exception_ptr(error));
  std::erase_if(works_, [&](const auto& work) { return work.get() == &operation; });
  if (half_way && !failure_) end_everything(operation.error);  // the rest of the message has no place to go
  note_waiting(-1);
  lock.unlock();
  if (callbacks_.report_waiting) callbacks_.report_waiting(operation.describe());
  throw error;
}

// The error of an operation that fails because of `cause`. It says who is to blame and what this rank was doing. The
// launcher is told, too, the first time.
std::exception_ptr Endpoint::error_for(const Operation& operation, const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const PeerDied& died) {
    const auto count = operation.kind == Operation::Kind::send ? sent_[index_of(operation.peer)]
                                                               : mailbox(operation.peer).received() + 1;
    if (!std::exchange(reported_, true) && callbacks_.report_waiting)
      callbacks_.report_waiting(fmt::format("{} (message {})", operation.describe(), count));
    ErrorFacts facts = operation.facts(rank_, died.facts().message);
    facts.message_number = std::max<std::uint64_t>(count, 1);  // a first send that fails at once is not counted yet
    facts.peer = died.peer();
    facts.hint = died.facts().hint;
    return died.with_facts(std::move(facts));
  } catch (...) {
    return cause;
  }
}

void Endpoint::fail_because(Operation& operation, const std::exception_ptr& cause) {
  fail(operation, error_for(operation, cause));
}

void Endpoint::peer_died(Rank peer) {
  if (failure_ || has_left(peer)) return;
  const std::string fate = callbacks_.fate_of ? callbacks_.fate_of(peer) : "";
  const std::string how = fate == "exit code 0" ? "left early" : "died";
  end_everything(std::make_exception_ptr(
      PeerDied(peer, fmt::format("rank {} {} ({})", peer, how, fate.empty() ? "status unknown" : fate))));
}

void Endpoint::peer_unreachable(Rank peer, const std::string& address, const std::string& why) {
  if (failure_ || has_left(peer)) return;
  if (callbacks_.fate_of && !callbacks_.fate_of(peer).empty())
    return peer_died(peer);  // the launcher knows how it ended
  end_everything(std::make_exception_ptr(
      PeerUnreachable(peer, fmt::format("rank {} at {} is unreachable ({})", peer, address, why))));
}

void Endpoint::peer_makes_no_sense(Rank peer, const std::string& address, const std::string& why) {
  if (failure_ || has_left(peer)) return;
  end_everything(std::make_exception_ptr(PeerUnreachable(
      peer, fmt::format("the connection to rank {} at {} can't be used any more: {}", peer, address, why),
      "the same version of Lockstep on all ranks, and a network that nobody else writes to")));
}

void Endpoint::peer_failed(const Cause& cause) {
  if (failure_) return;
  const std::string text = printable(cause.text);
  end_everything(cause.ending == Ending::mismatch ? std::make_exception_ptr(Mismatch(text))
                                                  : std::make_exception_ptr(PeerDied(cause.rank, text)));
}

std::optional<Cause> Endpoint::cause() const {
  if (!failure_) return std::nullopt;
  try {
    std::rethrow_exception(failure_);
  } catch (const PeerDied& died) {
    return Cause{died.peer(), died.what()};
  } catch (const Mismatch& mismatch) {
    return Cause{rank_, mismatch.what(), Ending::mismatch};
  } catch (const std::exception& error) {
    return Cause{rank_, fmt::format("rank {} failed: {}", rank_, error.what())};
  }
}

void Endpoint::abort(const std::string& why) noexcept {
  pass_on(rank_, fmt::format("rank {} failed: {}", rank_, why), Ending::failed);
}

void Endpoint::pass_on(Rank culprit, const std::string& why, Ending ending) noexcept {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  ended_ = true;
  const auto known = cause();  // the cause that was heard first is passed on
  leave(known ? *known : Cause{culprit, why, ending});
}

std::exception_ptr Endpoint::absence_of(Rank peer) {
  return std::make_exception_ptr(PeerDied(
      peer, fmt::format("rank {} has left after {} messages to rank {}", peer, mailbox(peer).received(), rank_)));
}

void Endpoint::peer_left(Rank peer) {
  if (failure_ || has_left(peer)) return;
  log::debug("rank {}: rank {} has left", rank_, peer);
  left_[index_of(peer)] = true;
  fail_peer_operations(peer, absence_of(peer));
  notify();
}

void Endpoint::end_everything(const std::exception_ptr& error) {
  failure_ = error;
  ended_ = true;
  log::debug("rank {}: everything ends: {}", rank_, cause()->text);
  for (Rank peer = 0; peer < size_; ++peer) fail_peer_operations(peer, error);
  notify();
}

void Endpoint::fail_peer_operations(Rank peer, const std::exception_ptr& cause) {
  stop_transfers(peer);
  mailbox(peer).fail_all([&](const Operation& operation) { return error_for(operation, cause); });
  for (Operation* operation : std::vector<Operation*>(sends(peer))) {
    forget_send(*operation);
    fail_because(*operation, cause);
  }
}

void Endpoint::fail_outstanding() {
  const Lock lock(mutex_);
  for (Rank peer = 0; peer < size_; ++peer)
    fail_peer_operations(peer, std::make_exception_ptr(Error(
                                   fmt::format("rank {}: the transport was closed with this work under way", rank_))));
  works_.clear();
}

}  // namespace lockstep::transport
