// The handle of something under way: a collective, a send, a receive.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "lockstep/base/clock.h"

namespace lockstep {

class Work {
 public:
  // When a collective work ran on the communication thread; what it waited for its peers is in there.
  struct Times {
    Clock::time_point began;
    Clock::time_point ended;
  };
  // What each kind of work provides.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;  // throws what went wrong, every time it is called
    virtual bool done() = 0;
    virtual Times times() { return {}; }  // asked for only when it is done
  };

  Work() = default;  // done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Blocks until it is done; throws what went wrong. May be called again.
  void wait() {
    if (state_) state_->wait();
  }
  // True when wait() would not block. Never blocks.
  bool done() { return !state_ || state_->done(); }
  // Both are Clock's epoch when it is not done, is not a collective, or never was under way.
  Times times() { return state_ && state_->done() ? state_->times() : Times{}; }

 private:
  std::shared_ptr<State> state_;
};

// A work that ends with `finish`, run once, by the first thread that waits for it.
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
