// The handle of an asynchronous operation: a collective, a send or a receive.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "lockstep/types.h"

namespace lockstep {

class Work {
 public:
  // When a collective ran on the communication thread. The time that it waited for its peers is included.
  struct Times {
    Clock::time_point began;
    Clock::time_point ended;
  };
  // What each kind of work provides.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;  // throws the operation's error, at every call
    virtual bool done() = 0;
    virtual Times times() { return {}; }  // called only when done() is true
  };

  Work() = default;  // an empty work, which is done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Blocks until the operation is done. Throws its error if it failed. May be called again.
  void wait() {
    if (state_) state_->wait();
  }
  // True if wait() would not block. Never blocks.
  bool done() { return !state_ || state_->done(); }
  // Both times are the epoch of Clock if the work is not done, is not a collective, or never began.
  Times times() { return state_ && state_->done() ? state_->times() : Times{}; }

 private:
  std::shared_ptr<State> state_;
};

// A work that consists of `work` and then `finish`, which runs once, on the first thread that waits. done() may be true
// before `finish` has run.
inline Work then(Work work, std::function<void()> finish) {
  class Finished final : public Work::State {
   public:
    Finished(Work before, std::function<void()> last) : work_(std::move(before)), finish_(std::move(last)) {}
    void wait() override {
      work_.wait();
      std::call_once(finished_, finish_);
    }
    bool done() override { return work_.done(); }
    Work::Times times() override { return work_.times(); }

   private:
    Work work_;
    std::function<void()> finish_;
    std::once_flag finished_;
  };
  return Work(std::make_shared<Finished>(std::move(work), std::move(finish)));
}

}  // namespace lockstep
