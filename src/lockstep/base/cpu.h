// Which cores this process may use, and how ranks on one host share them.
#pragma once

#include <string>

namespace lockstep {

// Cores in the affinity mask, further limited by a cgroup CPU quota (rounded up). At least 1.
int allowed_cores();

// Threads a rank should use so that `local_ranks` of them share the allowed cores. At least 1.
int threads_per_rank(int local_ranks);

// Sets OMP_NUM_THREADS and, if they are already loaded, OpenMP and OpenBLAS themselves (they read the variable only
// when they are loaded).
void limit_math_threads(int threads);

// Moves the calling thread to another of the cores it may use, if there is one, and leaves it free to move on.
void leave_core(int core);

std::string cpu_model();

}  // namespace lockstep
