// Values made on a thread of their own, one ahead of whoever takes them.
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

// Calls `make` until it gives nothing. At most one value waits to be taken, and the next is not begun before it was:
// that bounds the memory.
//
// `make` runs on the thread only, and all that it uses must live as long as this. What it throws comes out of next(),
// after the values before it, and again at each further call. To destroy this waits for a `make` that is under way, and
// for nothing else. next() is for one thread.
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

  // Nothing: there are no more.
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

  // False: nobody wants any more.
  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_ || stop_; });
    return !stop_;
  }

  std::function<std::optional<T>()> make_;
  std::mutex mutex_;  // guards what follows, up to the thread
  std::condition_variable changed_;
  std::optional<T> ready_;
  std::exception_ptr error_;
  bool ended_ = false;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace lockstep::data
