// Makes values on a thread of its own, one ahead of the caller that takes them.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/base/thread.h"

namespace lockstep::data {

// Calls `make` until it returns nothing. At most one value waits to be taken, and the next one is begun only after that
// one was taken: this bounds the memory.
//
// `make` runs only on the thread, and everything that it uses must live as long as this object. What it throws comes
// out of next(), after the values before it, and again at each further call. Destruction waits for a `make` that is
// running, and for nothing else. Only one thread may call next().
template <typename T>
class Prefetch {
 public:
  explicit Prefetch(std::function<std::optional<T>()> make)
      : make_(std::move(make)),
        thread_(thread_without_signals("the thread that prepares batches", [this] { run(); })) {}
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  ~Prefetch() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // The next value, or none if there are no more.
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_ || ended_; });
    if (!ready_) {
      if (error_) std::rethrow_exception(error_);
      return {};
    }
    std::optional<T> value = std::exchange(ready_, std::nullopt);
    lock.unlock();
    changed_.notify_all();
    return value;
  }

 private:
  void run() {
    std::exception_ptr error;
    try {
      while (wait_for_room()) {
        std::optional<T> value = make_();
        if (!value) break;
        {
          const std::lock_guard lock(mutex_);
          ready_ = std::move(value);
        }
        changed_.notify_all();
      }
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      error_ = error;
      ended_ = true;
    }
    changed_.notify_all();
  }

  // Returns false if no more values are wanted.
  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_ || stop_; });
    return !stop_;
  }

  std::function<std::optional<T>()> make_;
  std::mutex mutex_;  // guards the members below, except the thread
  std::condition_variable changed_;
  std::optional<T> ready_;
  std::exception_ptr error_;
  bool ended_ = false;
  bool stop_ = false;
  std::thread thread_;  // the last member, because it uses the others
};

}  // namespace lockstep::data
