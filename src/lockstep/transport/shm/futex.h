// Sleeps until a word in shared memory changes. std::atomic::wait cannot be used, because libstdc++ 12 makes it private
// to one process.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "lockstep/base/clock.h"

namespace lockstep::transport::shm {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

// Returns when the word is no longer `expected`, when it is woken or interrupted, or after `at_most`.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration at_most) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(at_most).count();
  const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lockstep::transport::shm
