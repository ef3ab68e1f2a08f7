// Signals as messages that a poll loop can read.
#pragma once

#include <signal.h>

#include <optional>

#include "lockstep/base/fd.h"

namespace lockstep::launch {

// While it lives, the signals that concern a launcher come out of fd() and do nothing else, and a write to a closed
// pipe is an error and not a signal. A SIGHUP, SIGINT or SIGQUIT that the caller ignored (nohup, a shell's background
// job) stays ignored. One at a time; make it before threads, which inherit the blocked signals.
class SignalInbox {
 public:
  SignalInbox();
  // Puts back what was; a signal that nobody read is then delivered.
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int fd() const { return fd_.get(); }  // non-blocking
  // The next signal, or nothing.
  std::optional<int> next() const;

 private:
  Fd fd_;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
  struct sigaction child_before_ {};
};

}  // namespace lockstep::launch
