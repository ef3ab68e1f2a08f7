// Keeps the collectives of a communicator in the order they were called. One that nobody is before runs on the caller's
// thread; asynchronous ones, and those behind them, on a thread that is started for the first of them.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/base/fork.h"
#include "lockstep/comm/work.h"

namespace lockstep::comm {

// All methods may be called from any thread.
class Order {
 public:
  using Body = std::function<void()>;

  // `on_start` is the first thing that the thread does; `thread` is its name in errors.
  explicit Order(Body on_start = {}, std::string thread = "the communication thread")
      : on_start_(std::move(on_start)), name_(std::move(thread)) {}
  ~Order() {
    close([] {});
  }
  Order(const Order&) = delete;

  // Runs `body` when its turn has come, and returns when it is done; throws what it throws.
  template <typename Function>
  void run(Function&& body) {
    check_fork();
    {
      std::unique_lock lock(mutex_);
      if (!queue_.empty() || busy_) {
        lock.unlock();
        return later(std::forward<Function>(body)).wait();
      }
      busy_ = true;
    }
    const Turn turn(*this);
    body();
  }

  // Runs `body` on the thread when its turn has come.
  Work later(Body body);

  // Fails what has not begun, calls `interrupt` so that what runs gives up, and waits for it.
  void close(const Body& interrupt);

 private:
  class Job;
  struct Turn {
    explicit Turn(Order& whose) : order(whose) {}
    ~Turn() { order.end_turn(); }
    Order& order;
  };
  void check_fork() const;  // before any lock: a child may have got it locked
  void end_turn();
  void work();

  const Body on_start_;
  const std::string name_;
  std::mutex mutex_;  // guards what follows
  ForkableCondition news_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool busy_ = false;
  bool closed_ = false;
  std::thread thread_;
  const Birthplace birthplace_;
};

}  // namespace lockstep::comm
