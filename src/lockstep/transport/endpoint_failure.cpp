// When things go wrong: who is to blame, who must be told, and what the caller sees.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/transport/endpoint.h"

namespace lockstep::transport {

// No list knows it any more.
void Endpoint::abandon(Operation& operation) {
  if (operation.kind == Operation::Kind::send)
    forget_send(operation);
  else
    mailbox(operation.peer).forget(operation);
}

void Endpoint::time_out(Lock& lock, Operation& operation) {
  const std::string who = census();
  const auto& arrivals = mailbox(operation.peer).arrivals();
  const bool half_way =
      operation.moved > 0 || std::any_of(arrivals.begin(), arrivals.end(),
                                         [&](const Incoming& message) { return message.receive == &operation; });
  abandon(operation);
  const std::string what = operation.describe();
  const TimedOut error(
      fmt::format("rank {}: {} timed out after {:.3g} s. {}", rank_, what,
                  std::chrono::duration<double>(operation.timeout).count(), who),
      fmt::format("look at rank {}: is it stopped, or busy elsewhere? LOCKSTEP_TIMEOUT waits longer", operation.peer));
  fail(operation, std::make_exception_ptr(error));
  std::erase_if(works_, [&](const auto& work) { return work.get() == &operation; });
  if (half_way && !failure_) end_everything(operation.peer, operation.error);  // the rest of the message has no home
  note_waiting(-1);
  lock.unlock();
  if (surroundings_.report_waiting) surroundings_.report_waiting(what);
  throw error;
}

// Says who is to blame and what this rank was doing; the launcher is told too.
void Endpoint::throw_failure(Lock& lock, const Operation& operation) {
  const bool first = !std::exchange(reported_, true);
  const auto count =
      operation.kind == Operation::Kind::send ? sent_[index(operation.peer)] : mailbox(operation.peer).received() + 1;
  lock.unlock();
  try {
    std::rethrow_exception(operation.error);
  } catch (const PeerDied& died) {
    const std::string what = fmt::format("{} (message {})", operation.describe(), count);
    if (first && surroundings_.report_waiting) surroundings_.report_waiting(what);
    throw PeerDied(died.peer(),
                   fmt::format("rank {}: stopped because {}; it was waiting in {}", rank_, died.what(), what));
  }
}

void Endpoint::peer_died(Rank peer) {
  if (failure_ || has_left(peer)) return;
  const std::string fate = surroundings_.fate_of ? surroundings_.fate_of(peer) : "";
  const std::string how = fate == "exit code 0" ? "left early" : "died";
  end_everything(peer, std::make_exception_ptr(PeerDied(
                           peer, fmt::format("rank {} {} ({})", peer, how, fate.empty() ? "status unknown" : fate))));
}

void Endpoint::peer_failed(const Cause& cause) {
  if (!failure_) end_everything(cause.rank, std::make_exception_ptr(PeerDied(cause.rank, cause.text)));
}

std::optional<Cause> Endpoint::cause() const {
  if (!failure_) return std::nullopt;
  try {
    std::rethrow_exception(failure_);
  } catch (const PeerDied& died) {
    return Cause{died.peer(), died.what()};
  } catch (const std::exception& error) {
    return Cause{rank_, fmt::format("rank {} failed: {}", rank_, error.what())};
  }
}

void Endpoint::peer_left(Rank peer) {
  if (failure_ || has_left(peer)) return;
  log::debug("rank {}: rank {} has left", rank_, peer);
  left_[index(peer)] = true;
  fail_peer_operations(
      peer, std::make_exception_ptr(PeerDied(peer, fmt::format("rank {} has left after {} messages to rank {}", peer,
                                                               mailbox(peer).received(), rank_))));
  notify();
}

void Endpoint::end_everything(Rank peer, const std::exception_ptr& error) {
  log::debug("rank {}: rank {} is gone, everything ends", rank_, peer);
  failure_ = error;
  for (Rank other = 0; other < size_; ++other) fail_peer_operations(other, error);
  notify();
}

void Endpoint::fail_peer_operations(Rank peer, const std::exception_ptr& error) {
  mailbox(peer).fail_all(error);
  for (Operation* operation : std::vector<Operation*>(sends(peer))) {
    forget_send(*operation);
    fail(*operation, error);
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
