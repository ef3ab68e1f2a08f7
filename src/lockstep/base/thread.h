// Threads of Lockstep inside a user's program.
#pragma once

#include <signal.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/error.h"

namespace lockstep {

// Starts a thread with all signals blocked, because signals belong to the program. `what` names the thread and its
// owner ("rank 1's helper thread") in the SystemError that is thrown if no thread can be started.
template <typename Body>
std::thread thread_without_signals(const std::string& what, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread(std::move(body));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw SystemError(error.code().value(), "cannot start " + what,
                      "a higher `ulimit -u` (processes and threads of this user), or fewer ranks");
  }
}

}  // namespace lockstep
