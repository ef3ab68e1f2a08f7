// A thread of ours inside a user's program.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace lockstep {

// Starts a thread that takes no signals: they are the program's business.
template <typename Body>
std::thread thread_without_signals(Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace lockstep
