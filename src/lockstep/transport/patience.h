// How a rank waits before it sleeps: spin with pause only while all ranks of the host fit the allowed cores (otherwise
// the spinning keeps the core from the rank that it waits for), then yield a few times, then sleep in the kernel.
#pragma once

#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::transport {

inline void cpu_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct WaitPolicy {
  int looks = 1;  // at the wire before each pause
  int spins = 0;
  int yields = 0;

  // `local_ranks` on this host share `cores`. The counts were measured on 2 cores; see docs/contracts.md, "Waiting".
  static WaitPolicy for_ranks(int local_ranks, int cores) {
    return local_ranks <= cores ? WaitPolicy{16, 1000, 20} : WaitPolicy{1, 0, 400};
  }
};

// Counts one wait through its phases.
class Patience {
 public:
  explicit Patience(const WaitPolicy& policy) : policy_(policy) {}
  // Passes a moment; false once it is time to sleep in the kernel.
  bool pass() {
    if (step_ < policy_.spins) {
      cpu_pause();
    } else if (step_ < policy_.spins + policy_.yields) {
      sched_yield();
    } else {
      return false;
    }
    ++step_;
    return true;
  }

 private:
  WaitPolicy policy_;
  int step_ = 0;
};

}  // namespace lockstep::transport
