// The handle of something under way: a collective, a send, a receive.
#pragma once

#include <memory>

#include "lockstep/base/clock.h"

namespace lockstep {

class Work {
 public:
  // What each kind of work provides.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;  // throws what went wrong, every time it is called
    virtual bool done() = 0;
  };

  Work() = default;  // done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Blocks until it is done; throws what went wrong. May be called again.
  void wait() {
    if (state_) state_->wait();
  }
  // True when wait() would not block. Never blocks.
  bool done() { return !state_ || state_->done(); }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
