// Runs the collectives of a communicator one after the other, in the order in which they were called. A synchronous
// call with no other before it runs on the caller's thread. Asynchronous calls, and the calls behind them, run on a
// thread that the first asynchronous call starts.
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
#include "lockstep/work.h"

namespace lockstep::comm {

// All methods may be called from any thread.
class SerialExecutor {
 public:
  using Body = std::function<void()>;

  // `on_start` is the first thing that the thread runs; `thread` is the thread's name in errors.
  explicit SerialExecutor(Body on_start = {}, std::string thread = "the communication thread")
      : on_start_(std::move(on_start)), name_(std::move(thread)) {}
  ~SerialExecutor() {
    close([] {});
  }
  SerialExecutor(const SerialExecutor&) = delete;

  // Runs `body` when its turn has come, and returns when it is done. Throws what `body` throws.
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

  // Runs `body` on the thread when its turn has come. Throws Error after close().
  Work later(Body body);

  // Makes calls fail that have not begun, calls `interrupt` so that the running call gives up, and waits until it has
  // ended.
  void close(const Body& interrupt);

 private:
  class Job;
  struct Turn {
    explicit Turn(SerialExecutor& whose) : executor(whose) {}
    ~Turn() { executor.end_turn(); }
    SerialExecutor& executor;
  };
  void check_fork() const;  // comes before any lock, because a forked child may have inherited a locked mutex
  void end_turn();
  void work();

  const Body on_start_;
  const std::string name_;
  std::mutex mutex_;  // guards the members below
  ForkableCondition news_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool busy_ = false;
  bool closed_ = false;
  std::thread thread_;
  const Birthplace birthplace_;
};

}  // namespace lockstep::comm
