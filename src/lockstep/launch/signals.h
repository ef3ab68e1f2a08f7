// Signals as messages that a poll loop can read.
#pragma once

#include <signal.h>

#include <optional>

#include "lockstep/base/fd.h"

namespace lockstep::launch {

// While a SignalInbox exists, the signals that concern a launcher are read from fd() and do nothing else, and a write
// to a closed pipe fails with an error and not with a signal. A SIGHUP, SIGINT or SIGQUIT that the caller ignored
// (nohup, a shell's background job) stays ignored. There may be only one at a time. Make it before any thread, because
// threads inherit the blocked signals.
class SignalInbox {
 public:
  SignalInbox();
  // Restores the signal handling from before. Signals that nobody has read are then delivered.
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int fd() const { return fd_.get(); }  // non-blocking
  // The next signal, or nothing if none has come. Does not block.
  std::optional<int> next() const;

 private:
  Fd fd_;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
  struct sigaction child_before_ {};
};

}  // namespace lockstep::launch
