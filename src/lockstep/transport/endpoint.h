// What both transports share: blocking and asynchronous calls, waiting, deadlines, dead peers. They differ in how bytes
// move (start_send, progress_with) and in how a thread sleeps until there is something to do (sleep).
//
// There is no I/O thread in the fast path: a thread that waits moves the bytes of all operations of its rank. A helper
// thread does the same for works while no thread waits. The first asynchronous call that cannot finish at once starts
// it.
//
// Invariants:
//  1. mutex_ guards all state. progress() and start_send() run with it locked, and do not wait for peers. There is one
//     exception: when a world ends, they may wait for a moment to learn from the launcher how a rank ended, and until
//     nobody touches buffers any more.
//  2. An operation is completed or failed exactly once, with mutex_ locked. A thread that does that for another
//     thread's operation wakes that thread (notify).
//  3. At most one thread of a rank sleeps in the kernel (sleeping_). The others wait for it on news_.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/fork.h"
#include "lockstep/error.h"
#include "lockstep/transport.h"
#include "lockstep/transport/mailbox.h"
#include "lockstep/transport/operation.h"
#include "lockstep/transport/patience.h"

namespace lockstep::transport {

// Functions through which an endpoint asks the launcher and reports to it. Each of them may be empty.
struct EndpointCallbacks {
  // How a rank ended ("signal 9 (Killed)"), or an empty text if no launcher knows. May take up to 200 ms.
  std::function<std::string(Rank)> fate_of;
  // Called with what this rank was waiting for when a call fails because of its deadline, or, the first time only,
  // because of a peer.
  std::function<void(const std::string&)> report_waiting;
};

// Which rank ended the world, and how: "rank 2 failed: loss is NaN". Ranks pass it on unchanged, so that all of them
// name the same cause.
struct Cause {
  Rank rank;
  std::string text;
  Transport::Ending ending = Transport::Ending::failed;
};

class Endpoint : public Transport {
 public:
  Endpoint(Rank rank, int size, Duration timeout, WaitPolicy policy, EndpointCallbacks callbacks);
  ~Endpoint() override;
  Endpoint(const Endpoint&) = delete;

  Rank rank() const final { return rank_; }
  int size() const final { return size_; }
  void send(Rank to, Tag tag, ConstBytes bytes, std::optional<Duration> timeout) override;
  void recv(Rank from, Tag tag, Bytes bytes, std::optional<Duration> timeout) override;
  PendingMessage send_async(Rank to, Tag tag, ConstBytes bytes, std::optional<Duration> timeout) final;
  PendingMessage recv_async(Rank from, Tag tag, Bytes bytes, std::optional<Duration> timeout) final;
  void swap(const Swap& both, Tag tag, const Label& label, const std::function<void()>& on_delay) final;
  bool try_recv(Rank from, Tag tag, Bytes bytes) final;
  void look_after(std::span<const Rank> needed) final;
  void abort(const std::string& why) noexcept final;
  void pass_on(Rank culprit, const std::string& why, Ending ending) noexcept final;
  bool ended() const noexcept final { return ended_; }

 protected:
  using Lock = std::unique_lock<std::mutex>;

  // --- what a transport provides; all are called with the mutex held ---

  // Moves as much of a new send as is possible now, and queues the rest.
  virtual void start_send(Operation& operation) = 0;
  // Gives up a send that is not complete. When it returns, the buffer may be reused: whoever still reads it does so for
  // a message that has failed. True if part of the message had moved.
  virtual bool forget_send(Operation& operation) = 0;
  // When it returns, nobody writes to the buffers of receives from this peer any more.
  virtual void stop_transfers(Rank /*peer*/) {}
  // Begins to fetch a message that waits in its sender's memory. A receive was matched to it, or it is taken in.
  virtual void pull(Rank /*peer*/, Incoming& /*message*/) {}
  // Moves whatever can be moved to and from a peer without waiting. True if it moved anything.
  virtual bool progress_with(Rank peer) = 0;
  // Takes in messages that no receive has asked for yet, so that their senders can go on.
  virtual void take_in() {}
  // Sleeps until there may be something to do, or for `at_most`. Unlocks the mutex while asleep.
  virtual void sleep(Lock& lock, Duration at_most) = 0;
  // Handles what sleep() woke up for.
  virtual void after_sleep() { progress(-1); }
  // Makes another thread's sleep() return.
  virtual void interrupt_sleep() = 0;
  // Looks for peers that died without a goodbye.
  virtual void check_peers() = 0;
  // Says goodbye to all peers, or tells them the cause of the end. Only the first call counts.
  virtual void leave(const std::optional<Cause>& cause) noexcept = 0;
  // What is known about the progress of every rank, for the message of a timeout.
  virtual std::string census() = 0;
  // Called when this rank begins a long wait for a peer, or ends it (-1), so that other ranks can see it.
  virtual void note_waiting(Rank /*peer*/) {}

  // --- what a transport calls ---

  // Calls progress_with() for `awaited`, or for every peer if that is negative.
  bool progress(Rank awaited);

  void peer_died(Rank peer);  // a peer died without a goodbye: ends everything
  // Nothing gets through to a peer, as far as is known because of the network: ends everything.
  void peer_unreachable(Rank peer, const std::string& address, const std::string& why);
  // A peer sent something that cannot be understood: ends everything. The peer may be alive, but nothing more can be
  // received from it.
  void peer_makes_no_sense(Rank peer, const std::string& address, const std::string& why);
  void peer_failed(const Cause& cause);  // a peer reported a failure, its own or another rank's: ends everything
  void peer_left(Rank peer);             // a peer left in good order: ends the operations that need it
  bool has_left(Rank peer) const { return left_[index_of(peer)]; }
  bool failed() const { return failure_ != nullptr; }
  // Why everything ended, to be passed on to peers that have not noticed yet. Nothing while all is well.
  std::optional<Cause> cause() const;
  void finished(Operation& operation);                            // completes an operation and wakes its thread
  void arrived(Rank peer, Incoming& message, std::size_t bytes);  // calls Mailbox::advance and wakes the waiting thread
  void stop_helper();                                             // called first in a transport's destructor
  void fail_outstanding();  // called after stop_helper() in a transport's destructor
  bool in_forked_child() const;

  Mailbox& mailbox(Rank peer) { return mailboxes_[index_of(peer)]; }
  std::vector<Operation*>& sends(Rank peer) { return sends_[index_of(peer)]; }
  std::uint64_t sent_to(Rank peer) const { return sent_[index_of(peer)]; }
  void notify();

  const Rank rank_;
  const int size_;
  const Duration timeout_;
  const WaitPolicy policy_;
  std::mutex mutex_;  // guards everything below

 private:
  friend class PendingMessage;

  void check_call(Rank peer, const char* what) const;
  void run(Operation& operation);
  void start(Operation& operation);
  struct Company {  // what a swap adds to a wait: its other operation and its callback
    Operation* other = nullptr;
    const std::function<void()>* on_delay = nullptr;
  };
  void wait(Lock& lock, Operation& operation, const Company& company);
  void wait_awake(Lock& lock, Operation& operation, const Company& company);
  void wait_asleep(Lock& lock, Operation& operation, const Company& company);
  void give_up(Operation& operation, const std::exception_ptr& why);
  void stop_waiting();
  bool abandon(Operation& operation);
  void surprise(Operation& operation);
  void check_fork(const char* what) const;
  void sleep_or_follow(Lock& lock, Duration at_most);
  [[noreturn]] void time_out(Lock& lock, Operation& operation);
  PendingMessage launch_async(std::shared_ptr<Operation> operation);
  void help();
  void help_until_stopped();
  void end_everything(const std::exception_ptr& error);
  void fail_peer_operations(Rank peer, const std::exception_ptr& cause);
  std::exception_ptr error_for(const Operation& operation, const std::exception_ptr& cause);
  void fail_because(Operation& operation, const std::exception_ptr& cause);
  std::exception_ptr absence_of(Rank peer);

  EndpointCallbacks callbacks_;
  const Birthplace birthplace_;
  std::vector<Mailbox> mailboxes_;
  std::vector<std::vector<Operation*>> sends_;  // incomplete sends by peer, in order
  std::vector<std::uint64_t> sent_;             // number of messages sent, by peer
  std::vector<bool> left_;
  std::exception_ptr failure_;  // why every call fails from now on; null while all is well
  std::atomic<bool> ended_{false};
  bool reported_ = false;

  int waiters_ = 0;  // threads in wait()
  std::uint64_t unchecked_ = 0;
  bool sleeping_ = false;
  int followers_ = 0;
  ForkableCondition news_;

  std::vector<std::shared_ptr<Operation>> works_;  // asynchronous operations that are not complete
  ForkableCondition helper_news_;
  bool helper_stop_ = false;
  bool helper_idle_ = false;
  std::thread helper_;
};

}  // namespace lockstep::transport
