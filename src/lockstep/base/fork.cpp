#include "lockstep/base/fork.h"

#include <pthread.h>

#include <atomic>

namespace lockstep {
namespace {

std::atomic<std::uint64_t> g_forks{0};

}  // namespace

std::uint64_t fork_count() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++g_forks; });
  return g_forks.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(registered != 0);
}

}  // namespace lockstep
