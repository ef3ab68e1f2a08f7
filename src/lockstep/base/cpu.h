// Which cores this process may use, and how ranks on one host share them.
#pragma once

#include <string>

namespace lockstep {

// The number of cores in the affinity mask, or the cgroup's CPU quota (rounded up) if that is less. At least 1.
int allowed_cores();

// The number of threads per rank with which `local_ranks` ranks share the allowed cores. At least 1.
int threads_per_rank(int local_ranks);

// Limits the threads of the math libraries. Sets OMP_NUM_THREADS, and also calls OpenMP and OpenBLAS if they are
// already loaded, because they read the variable only when they are loaded.
void limit_math_threads(int threads);

// Moves the calling thread from `core` to another core that it may use, if there is one. The affinity mask is restored,
// so the kernel may move the thread again later.
void leave_core(int core);

std::string cpu_model();

}  // namespace lockstep
