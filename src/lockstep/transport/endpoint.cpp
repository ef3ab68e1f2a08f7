#include "lockstep/transport/endpoint.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/base/thread.h"
#include "lockstep/error.h"

namespace lockstep::transport {
namespace {

constexpr auto kSlice = 50ms;        // the longest sleep before peers are checked again
constexpr auto kFirstWarning = 10s;  // after this time a wait warns about who is late
// After this many passes a waiting sender takes in what others send. Its peer may not take the message because it is
// itself a waiting sender.
constexpr int kPassesBeforeTakingIn = 8;
constexpr int kMostPasses = 100'000;  // passes that a thread stays awake before it looks at the clock
// The number of calls between two checks of all peers; a large call counts for more. That is some milliseconds' worth
// of calls, and the checks cost less than 1 ns per call.
constexpr std::uint64_t kMostUnchecked = 4096;
constexpr auto kHelperPatience = 200us;  // how long the helper leaves a work to the threads that may wait for it

}  // namespace

PendingMessage::PendingMessage(Endpoint* endpoint, std::shared_ptr<Operation> operation)
    : endpoint_(endpoint), operation_(std::move(operation)) {}

bool PendingMessage::done() {
  if (!operation_ || !operation_->pending()) return true;
  endpoint_->check_fork("a work");
  const Endpoint::Lock lock(endpoint_->mutex_);
  endpoint_->progress(operation_->peer);
  return !operation_->pending();
}

void PendingMessage::wait() {
  if (!operation_) return;
  if (operation_->pending()) {
    endpoint_->check_fork("a work");
    Endpoint::Lock lock(endpoint_->mutex_);
    endpoint_->wait(lock, *operation_, {});
  } else if (operation_->state.load() == Operation::State::failed) {
    std::rethrow_exception(operation_->error);
  }
}

Endpoint::Endpoint(Rank rank, int size, Duration timeout, WaitPolicy policy, EndpointCallbacks callbacks)
    : rank_(rank),
      size_(size),
      timeout_(timeout),
      policy_(policy),
      callbacks_(std::move(callbacks)),
      sends_(index_of(size)),
      sent_(index_of(size)),
      left_(index_of(size)) {
  for (Rank peer = 0; peer < size; ++peer) mailboxes_.emplace_back(peer);
}

Endpoint::~Endpoint() = default;

bool Endpoint::in_forked_child() const { return birthplace_.is_elsewhere(); }

void Endpoint::check_fork(const char* what) const {
  if (in_forked_child())
    throw UsageError(
        fmt::format("rank {}: {} in a forked child: the transport belongs to the process that made it", rank_, what),
        "make the world after fork(), or exec a program that makes its own");
}

void Endpoint::check_call(Rank peer, const char* what) const {
  check_fork(what);
  if (peer < 0 || peer >= size_ || peer == rank_)
    throw UsageError(fmt::format("rank {}: {} rank {}: not a peer in a world of {}", rank_, what, peer, size_));
}

void Endpoint::send(Rank to, Tag tag, ConstBytes bytes, std::optional<Duration> timeout) {
  check_call(to, "send to");
  Operation operation(Operation::Kind::send, to, tag, const_cast<std::byte*>(bytes.data()), bytes.size(),
                      timeout.value_or(timeout_));
  run(operation);
}

void Endpoint::recv(Rank from, Tag tag, Bytes bytes, std::optional<Duration> timeout) {
  check_call(from, "recv from");
  Operation operation(Operation::Kind::recv, from, tag, bytes.data(), bytes.size(), timeout.value_or(timeout_));
  run(operation);
}

PendingMessage Endpoint::send_async(Rank to, Tag tag, ConstBytes bytes, std::optional<Duration> timeout) {
  check_call(to, "send to");
  return launch_async(std::make_shared<Operation>(Operation::Kind::send, to, tag, const_cast<std::byte*>(bytes.data()),
                                                  bytes.size(), timeout.value_or(timeout_)));
}

PendingMessage Endpoint::recv_async(Rank from, Tag tag, Bytes bytes, std::optional<Duration> timeout) {
  check_call(from, "recv from");
  return launch_async(std::make_shared<Operation>(Operation::Kind::recv, from, tag, bytes.data(), bytes.size(),
                                                  timeout.value_or(timeout_)));
}

void Endpoint::swap(const Swap& both, Tag tag, const Label& label, const std::function<void()>& on_delay) {
  if (both.to) check_call(*both.to, "send to");
  if (both.from) check_call(*both.from, "recv from");
  constexpr auto kNever = std::chrono::hours(24 * 365);
  Operation send(Operation::Kind::send, both.to.value_or(rank_), tag, const_cast<std::byte*>(both.out.data()),
                 both.out.size(), kNever, label);
  Operation recv(Operation::Kind::recv, both.from.value_or(rank_), tag, both.in.data(), both.in.size(), kNever, label);
  Lock lock(mutex_);
  try {
    if (both.from) start(recv);
    if (both.to) start(send);
    if (both.from) wait(lock, recv, {both.to ? &send : nullptr, &on_delay});
    if (both.to) wait(lock, send, {nullptr, &on_delay});
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    if (both.from) give_up(recv, std::current_exception());
    if (both.to) give_up(send, std::current_exception());
    throw;
  }
}

bool Endpoint::try_recv(Rank from, Tag tag, Bytes bytes) {
  check_call(from, "recv from");
  const Lock lock(mutex_);
  progress(from);
  if (!mailbox(from).has_whole(tag, bytes.size())) return false;
  Operation operation(Operation::Kind::recv, from, tag, bytes.data(), bytes.size(), timeout_);
  mailbox(from).receive(operation);
  if (operation.state.load() == Operation::State::failed) std::rethrow_exception(operation.error);
  return true;
}

void Endpoint::look_after(std::span<const Rank> needed) {
  check_fork("a call");
  const Lock lock(mutex_);
  progress(-1);
  if (!failed()) take_in();
  if (!failed()) check_peers();
  if (failure_) std::rethrow_exception(failure_);
  for (const Rank peer : needed)
    if (has_left(peer)) std::rethrow_exception(absence_of(peer));
}

void Endpoint::start(Operation& operation) {
  if (failure_) return fail_because(operation, failure_);
  if (operation.kind == Operation::Kind::send) {
    ++sent_[index_of(operation.peer)];
    if (has_left(operation.peer)) return fail_because(operation, absence_of(operation.peer));
    return start_send(operation);
  }
  if (Incoming* message = mailbox(operation.peer).receive(operation)) pull(operation.peer, *message);
  if (operation.pending() && has_left(operation.peer)) {
    mailbox(operation.peer).forget(operation);
    fail_because(operation, absence_of(operation.peer));
  }
}

void Endpoint::run(Operation& operation) {
  Lock lock(mutex_);
  try {
    start(operation);
  } catch (...) {
    surprise(operation);
    throw;
  }
  wait(lock, operation, {});
}

void Endpoint::wait(Lock& lock, Operation& operation, const Company& company) {
  ++waiters_;
  try {
    unchecked_ += 1 + operation.bytes / 4096;
    if (unchecked_ > kMostUnchecked) {  // two ranks that never have to sleep must also notice that a third has died
      unchecked_ = 0;
      check_peers();
    }
    wait_awake(lock, operation, company);
    if (operation.pending()) wait_asleep(lock, operation, company);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    if (company.on_delay == nullptr) surprise(operation);
    note_waiting(-1);
    stop_waiting();
    throw;
  }
  stop_waiting();
  if (operation.state.load() == Operation::State::failed) std::rethrow_exception(operation.error);
}

// Handles an exception that is not the operation's own failure, for example lack of memory. The state may be half
// changed, so everything ends. The operation may lie on this stack, so nobody may find it later.
void Endpoint::surprise(Operation& operation) {
  if (!operation.pending()) return;
  abandon(operation);
  fail(operation, std::current_exception());
  if (!failure_) end_everything(std::current_exception());
}

void Endpoint::stop_waiting() {
  if (--waiters_ == 0 && helper_idle_ && !works_.empty()) helper_news_->notify_one();
}

// Looks and pauses in turn, until the operation is done or it is time to sleep. It stays awake as long as bytes move,
// but not for ever: a peer may be busy with other messages than ours, and only wait_asleep() looks at the clock.
void Endpoint::wait_awake(Lock& lock, Operation& operation, const Company& company) {
  Patience patience(policy_);
  for (int pass = 1; operation.pending() && pass < kMostPasses; ++pass) {
    bool moved = false;
    for (int look = 0; look < policy_.looks && !moved && operation.pending(); ++look) {
      moved = progress(operation.peer);
      if (company.other != nullptr && company.other->pending() && company.other->peer != operation.peer)
        moved |= progress(company.other->peer);
    }
    if (!operation.pending()) return;
    if (operation.kind == Operation::Kind::send && pass % kPassesBeforeTakingIn == 0) {
      progress(-1);
      take_in();
    }
    lock.unlock();  // here other threads get their turn
    const bool again = moved || patience.pass();
    lock.lock();
    if (!again) return;
  }
}

void Endpoint::wait_asleep(Lock& lock, Operation& operation, const Company& company) {
  note_waiting(operation.peer);
  const auto started = Clock::now();
  const Deadline deadline = Deadline::in(operation.timeout);
  auto next_check = started + kSlice;
  auto next_warning = started + kFirstWarning;
  while (operation.pending()) {
    take_in();
    if (!operation.pending()) break;
    sleep_or_follow(lock, std::min<Duration>(kSlice, deadline.left()));
    if (!operation.pending()) break;
    const auto now = Clock::now();
    if (now >= next_check) {
      check_peers();
      next_check = now + kSlice;
    }
    if (!operation.pending()) break;
    if (now >= deadline.at()) time_out(lock, operation);
    if (company.on_delay != nullptr) {
      lock.unlock();
      (*company.on_delay)();
      lock.lock();
    } else if (now >= next_warning) {
      log::warn("rank {} has waited {:.0f} s: {}. {}", rank_, seconds_since(started), operation.describe(), census());
      next_warning += kFirstWarning * 6;
    }
  }
  note_waiting(-1);
}

bool Endpoint::progress(Rank awaited) {
  if (failed()) return false;
  if (awaited >= 0) return progress_with(awaited);
  bool moved = false;
  for (Rank peer = 0; peer < size_; ++peer)
    if (peer != rank_ && !failed()) moved |= progress_with(peer);
  return moved;
}

void Endpoint::sleep_or_follow(Lock& lock, Duration at_most) {
  if (sleeping_) {
    ++followers_;
    news_->wait_for(lock, at_most);
    --followers_;
    return;
  }
  sleeping_ = true;
  try {
    sleep(lock, at_most);
  } catch (...) {
    sleeping_ = false;
    throw;
  }
  sleeping_ = false;
  after_sleep();
  if (followers_ > 0) news_->notify_all();
}

void Endpoint::notify() {
  if (followers_ > 0) news_->notify_all();
  if (sleeping_) interrupt_sleep();
}

void Endpoint::finished(Operation& operation) {
  complete(operation);
  notify();
}

void Endpoint::arrived(Rank peer, Incoming& message, std::size_t bytes) {
  mailbox(peer).advance(message, bytes);
  notify();
}

// --- works that nobody waits for ---

PendingMessage Endpoint::launch_async(std::shared_ptr<Operation> operation) {
  operation->async = true;
  const Lock lock(mutex_);
  start(*operation);
  // A send has already written what it could. Reading now would only take in messages whose receives are about to be
  // posted.
  if (operation->pending() && operation->kind == Operation::Kind::recv) progress(operation->peer);
  if (operation->pending()) {
    works_.push_back(operation);
    if (!helper_.joinable()) {
      helper_ = thread_without_signals(fmt::format("rank {}'s helper thread", rank_), [this] { help(); });
    } else if (helper_idle_) {
      helper_news_->notify_one();
    }
  }
  return {this, std::move(operation)};
}

void Endpoint::help() {
  try {
    help_until_stopped();
  } catch (...) {  // most likely out of memory, and nobody else could report it
    const Lock lock(mutex_);
    if (!failure_) end_everything(std::current_exception());
  }
}

void Endpoint::help_until_stopped() {
  Lock lock(mutex_);
  auto next_check = Clock::now() + kSlice;
  while (!helper_stop_) {
    std::erase_if(works_, [](const auto& work) { return !work->pending(); });
    if (works_.empty() || waiters_ > 0) {  // a waiting thread moves everything, and two would be in each other's way
      helper_idle_ = true;
      helper_news_->wait(lock, [&] { return helper_stop_ || (!works_.empty() && waiters_ == 0); });
      helper_idle_ = false;
      helper_news_->wait_for(lock, kHelperPatience, [&] { return helper_stop_; });
      continue;
    }
    progress(-1);
    take_in();
    if (std::none_of(works_.begin(), works_.end(), [](const auto& work) { return work->pending(); })) continue;
    sleep_or_follow(lock, kSlice);
    if (Clock::now() >= next_check) {
      check_peers();
      next_check = Clock::now() + kSlice;
    }
  }
}

void Endpoint::stop_helper() {
  if (in_forked_child()) {
    if (helper_.joinable()) helper_.detach();  // the thread exists only in the parent
    return;
  }
  {
    const Lock lock(mutex_);
    helper_stop_ = true;
    helper_news_->notify_all();
    notify();
  }
  if (helper_.joinable()) helper_.join();
}

}  // namespace lockstep::transport
