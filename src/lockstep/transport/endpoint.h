// What both transports share: blocking and asynchronous calls, waiting, deadlines, dead peers. What differs is how
// bytes move (start_send, progress) and how a thread sleeps until there is news (sleep).
//
// There is no I/O thread in the fast path: the thread that waits moves the bytes, its own and everyone else's. A helper
// thread, started by the first asynchronous call that could not finish at once, does the same for works while nobody
// waits.
//
// Invariants:
//  1. mutex_ guards all state; progress() and start_send() run under it and do not wait for peers. Only the end of a
//     world does, for a moment: to learn from the launcher how a rank ended, and until nobody touches buffers any more.
//  2. An operation is completed or failed exactly once, under mutex_. Whoever does that for another thread's operation
//     wakes that thread (notify).
//  3. At most one thread of a rank sleeps in the kernel for news (sleeping_); others wait for it on news_.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/fork.h"
#include "lockstep/transport/mailbox.h"
#include "lockstep/transport/operation.h"
#include "lockstep/transport/patience.h"
#include "lockstep/transport/transport.h"

namespace lockstep::transport {

// What an endpoint asks of the world around it. All may be empty.
struct Surroundings {
  // How a rank ended, as far as a launcher knows ("signal 9 (Killed)"); may take up to 200 ms.
  std::function<std::string(Rank)> fate_of;
  // Called once when a call fails because of a peer or a deadline, with what this rank was waiting for.
  std::function<void(const std::string&)> report_waiting;
};

// Who ended the world, and how: "rank 2 failed: loss is NaN". Ranks pass it on as it is, so that all name the same
// cause.
struct Cause {
  Rank rank;
  std::string text;
  Transport::Ending ending = Transport::Ending::failed;
};

class Endpoint : public Transport {
 public:
  Endpoint(Rank rank, int size, Duration timeout, WaitPolicy policy, Surroundings surroundings);
  ~Endpoint() override;
  Endpoint(const Endpoint&) = delete;

  Rank rank() const final { return rank_; }
  int size() const final { return size_; }
  void send(Rank to, Tag tag, ConstBytes bytes, std::optional<Duration> timeout) override;
  void recv(Rank from, Tag tag, Bytes bytes, std::optional<Duration> timeout) override;
  Work send_async(Rank to, Tag tag, ConstBytes bytes, std::optional<Duration> timeout) final;
  Work recv_async(Rank from, Tag tag, Bytes bytes, std::optional<Duration> timeout) final;
  void swap(const Swap& both, Tag tag, const Label& label, const std::function<void()>& on_delay) final;
  bool try_recv(Rank from, Tag tag, Bytes bytes) final;
  void look_after(std::span<const Rank> needed) final;
  void abort(const std::string& why) noexcept final;
  void pass_on(Rank culprit, const std::string& why, Ending ending) noexcept final;
  bool ended() const noexcept final { return ended_; }

 protected:
  using Lock = std::unique_lock<std::mutex>;

  // --- what a transport provides; all are called with the mutex held ---

  // Moves what can be moved of a new send now; queues the rest.
  virtual void start_send(Operation& operation) = 0;
  // Gives up a send that is not complete: when it returns nobody reads its buffer. True when part of it had moved.
  virtual bool forget_send(Operation& operation) = 0;
  // Nobody writes to receives of messages from this peer when it returns.
  virtual void stop_transfers(Rank /*peer*/) {}
  // A receive was matched to a message that waits in its sender's memory.
  virtual void pull(Rank /*peer*/, Incoming& /*message*/) {}
  // Moves whatever can be moved to and from a peer without waiting. True if it moved anything.
  virtual bool progress_with(Rank peer) = 0;
  // Takes messages nobody has asked for out of their senders' hands, so that those can go on.
  virtual void take_in() {}
  // Sleeps until there may be something to do. Unlocks while asleep.
  virtual void sleep(Lock& lock, Duration at_most) = 0;
  // Does what sleep() woke up for.
  virtual void after_sleep() { progress(-1); }
  // Makes another thread's sleep() return.
  virtual void interrupt_sleep() = 0;
  // Looks for peers that died without a word.
  virtual void check_peers() = 0;
  // Says goodbye to all peers, or why it ends. The first word counts.
  virtual void leave(const std::optional<Cause>& cause) noexcept = 0;
  // What every rank was last seen doing, for a timeout's message.
  virtual std::string census() = 0;
  // This rank begins (or, with -1, ends) a long wait for a peer: others may want to know.
  virtual void note_waiting(Rank /*peer*/) {}

  // --- what a transport calls ---

  // progress_with(awaited), or with every peer when it is negative.
  bool progress(Rank awaited);

  void peer_died(Rank peer);  // without a goodbye: ends everything
  // Nothing gets through to a peer, for all that is known because of the network: ends everything.
  void peer_unreachable(Rank peer, const std::string& address, const std::string& why);
  // What a peer sent can't be understood: it may live, but nothing more can come from it.
  void peer_makes_no_sense(Rank peer, const std::string& address, const std::string& why);
  void peer_failed(const Cause& cause);  // a peer said so, of itself or of another: ends everything
  void peer_left(Rank peer);             // in good order: ends what needs that peer
  bool has_left(Rank peer) const { return left_[index(peer)]; }
  bool failed() const { return failure_ != nullptr; }
  // Why everything ended, to be passed on to peers that have not noticed; nothing while all is well.
  std::optional<Cause> cause() const;
  void finished(Operation& operation);                            // completes a send and wakes who waits for it
  void arrived(Rank peer, Incoming& message, std::size_t bytes);  // as Mailbox::advance, and wakes who waits for it
  void stop_helper();                                             // first thing in a transport's destructor
  void fail_outstanding();                                        // second
  bool in_forked_child() const;

  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  Mailbox& mailbox(Rank peer) { return mailboxes_[index(peer)]; }
  std::vector<Operation*>& sends(Rank peer) { return sends_[index(peer)]; }
  std::uint64_t sent_to(Rank peer) const { return sent_[index(peer)]; }
  void notify();

  const Rank rank_;
  const int size_;
  const Duration timeout_;
  const WaitPolicy policy_;
  std::mutex mutex_;  // guards everything below

 private:
  friend class Work;

  void check_call(Rank peer, const char* what) const;
  void run(Operation& operation);
  void start(Operation& operation);
  struct Company {  // what a swap waits with
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
  Work launch_async(std::shared_ptr<Operation> operation);
  void help();
  void help_until_stopped();
  void end_everything(const std::exception_ptr& error);
  void fail_peer_operations(Rank peer, const std::exception_ptr& cause);
  std::exception_ptr error_for(const Operation& operation, const std::exception_ptr& cause);
  void fail_because(Operation& operation, const std::exception_ptr& cause);
  std::exception_ptr absence_of(Rank peer);

  Surroundings surroundings_;
  const Birthplace birthplace_;
  std::vector<Mailbox> mailboxes_;
  std::vector<std::vector<Operation*>> sends_;  // by peer, in order, not yet complete
  std::vector<std::uint64_t> sent_;             // messages, by peer
  std::vector<bool> left_;
  std::exception_ptr failure_;  // why every call fails from now on
  std::atomic<bool> ended_{false};
  bool reported_ = false;

  int waiters_ = 0;  // threads in wait()
  std::uint64_t unchecked_ = 0;
  bool sleeping_ = false;
  int followers_ = 0;
  ForkableCondition news_;

  std::vector<std::shared_ptr<Operation>> works_;  // asynchronous, not yet complete
  ForkableCondition helper_news_;
  bool helper_stop_ = false;
  bool helper_idle_ = false;
  std::thread helper_;
};

}  // namespace lockstep::transport
