#include "lockstep/comm/serial_executor.h"

#include <utility>

#include "lockstep/base/thread.h"
#include "lockstep/error.h"

namespace lockstep::comm {

class SerialExecutor::Job : public Work::State {
 public:
  explicit Job(Body body) : body_(std::move(body)) {}

  void run() noexcept {
    times_.began = Clock::now();
    try {
      body_();
    } catch (...) {
      error_ = std::current_exception();
    }
    times_.ended = Clock::now();
    finish();
  }
  void fail(std::exception_ptr error) noexcept {
    error_ = std::move(error);
    finish();
  }

  void wait() override {
    if (!done() && birthplace_.is_elsewhere())
      throw UsageError(
          "waiting for a collective in a forked child: its thread is the parent's, and will not end it here",
          "wait for it in the process that began it");
    done_.wait(false, std::memory_order_acquire);
    if (error_) std::rethrow_exception(error_);
  }
  bool done() override { return done_.load(std::memory_order_acquire); }
  Work::Times times() override { return times_; }

 private:
  void finish() {
    body_ = nullptr;
    done_.store(true, std::memory_order_release);
    done_.notify_all();
  }

  Body body_;
  std::exception_ptr error_;  // written before done_ is set, and so are the times
  Work::Times times_;
  std::atomic<bool> done_{false};
  const Birthplace birthplace_;
};

void SerialExecutor::check_fork() const {
  if (birthplace_.is_elsewhere())
    throw UsageError("a collective in a forked child: the communicator belongs to the process that made it",
                     "make the world after fork(), or exec a program that makes its own");
}

void SerialExecutor::end_turn() {
  const std::lock_guard lock(mutex_);
  busy_ = false;
  news_->notify_all();
}

Work SerialExecutor::later(Body body) {
  check_fork();
  auto job = std::make_shared<Job>(std::move(body));
  const std::lock_guard lock(mutex_);
  if (closed_) throw Error("the communicator is closed");
  if (!thread_.joinable()) thread_ = thread_without_signals(name_, [this] { work(); });
  queue_.push_back(job);
  news_->notify_all();
  return Work(job);
}

void SerialExecutor::work() {
  if (on_start_) on_start_();
  std::unique_lock lock(mutex_);
  for (;;) {
    news_->wait(lock, [&] { return closed_ || (!queue_.empty() && !busy_); });
    if (closed_) return;
    const auto job = queue_.front();
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    job->run();
    lock.lock();
    busy_ = false;
    news_->notify_all();
  }
}

void SerialExecutor::close(const Body& interrupt) {
  if (birthplace_.is_elsewhere()) {  // the thread belongs to the parent and does not exist in this process
    if (thread_.joinable()) thread_.detach();
    return;
  }
  std::deque<std::shared_ptr<Job>> left;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    left.swap(queue_);
    news_->notify_all();
    if (busy_) interrupt();
  }
  for (const auto& job : left)
    job->fail(std::make_exception_ptr(Error("the communicator was closed before this work began")));
  if (thread_.joinable()) thread_.join();
  std::unique_lock lock(mutex_);  // a call on another thread may still be running
  news_->wait(lock, [&] { return !busy_; });
}

}  // namespace lockstep::comm
