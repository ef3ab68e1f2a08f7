// How a rank waits before it sleeps. First it spins with the pause instruction, then it yields a few times, then it
// sleeps in the kernel. It spins only if all ranks of the host fit the allowed cores; otherwise the spinning would keep
// the core from the rank that it waits for.
//
// Within one wait, only a rank that sleeps looks from time to time whether its peers live, so the other phases must be
// short. (A rank whose messages all arrive before it sleeps checks its peers once in 4,096 messages.) Yielding is
// therefore bounded by time as well: if something else keeps the cores busy, one yield can last several milliseconds.
#pragma once

#include <sched.h>

#include "lockstep/base/clock.h"

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
  int looks = 1;  // how often the caller checks its condition before each pass()
  int spins = 0;
  int yields = 0;

  // The policy for `local_ranks` ranks on this host that share `cores`. The counts were measured on 2 cores; see
  // docs/contracts.md, "Waiting".
  static WaitPolicy for_ranks(int local_ranks, int cores) {
    return local_ranks <= cores ? WaitPolicy{16, 1000, 20} : WaitPolicy{1, 0, 400};
  }
};

// One wait. The caller checks its condition and then calls pass(), again and again, until the condition holds or pass()
// returns false. If the caller itself yields between two calls of pass(), it must call about_to_yield() just before,
// so that this time counts, too.
class Patience {
 public:
  // The longest time between the first yield and the sleep. Ranks that only pass messages to each other take less.
  // Beside a program that keeps both cores busy, collectives of 4 and 5 ranks took 48 s with this bound, 62 s with 20
  // ms, and 21 s without yielding; on an idle machine the same three took 1.5 s, 2.0 s and 3.7 s.
  static constexpr auto kMostYielding = 2ms;

  explicit Patience(const WaitPolicy& policy) : policy_(policy) {}
  // Spins or yields once. Returns false when it is time to sleep in the kernel.
  bool pass() {
    if (out_of_time_ || step_ >= policy_.spins + policy_.yields) return false;
    if (step_++ < policy_.spins) {
      cpu_pause();
      return true;
    }
    about_to_yield();
    if (!out_of_time_) sched_yield();
    return !out_of_time_;
  }
  void about_to_yield() {
    const auto now = Clock::now();
    if (yielding_until_ == Clock::time_point{}) yielding_until_ = now + kMostYielding;
    out_of_time_ = now > yielding_until_;
  }

 private:
  WaitPolicy policy_;
  int step_ = 0;
  Clock::time_point yielding_until_{};  // set by the first yield
  bool out_of_time_ = false;
};

}  // namespace lockstep::transport
