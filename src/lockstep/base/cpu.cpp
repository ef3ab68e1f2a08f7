#include "lockstep/base/cpu.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

namespace lockstep {
namespace {

// The number of cores that the cgroup's CPU quota allows, or 0 if there is no quota. Looks for cgroup version 2 first,
// and then for version 1.
double quota_cores() {
  std::string quota;
  double period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> quota >> period && quota != "max" && period > 0)
    return std::stod(quota) / period;
  double quota_us = 0;
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (v1_quota >> quota_us && v1_period >> period && quota_us > 0 && period > 0) return quota_us / period;
  return 0;
}

}  // namespace

int allowed_cores() {
  int cores = 1;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  const double quota = quota_cores();
  if (quota > 0) cores = std::min(cores, std::max(1, static_cast<int>(std::ceil(quota))));
  return cores;
}

int threads_per_rank(int local_ranks) { return std::max(1, allowed_cores() / std::max(1, local_ranks)); }

void limit_math_threads(int threads) {
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
  using SetThreads = void (*)(int);
  for (const char* setter : {"omp_set_num_threads", "openblas_set_num_threads"})
    if (void* symbol = dlsym(RTLD_DEFAULT, setter)) reinterpret_cast<SetThreads>(symbol)(threads);
}

void leave_core(int core) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || !CPU_ISSET(core, &allowed)) return;
  cpu_set_t others = allowed;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) == 0 || ::sched_setaffinity(0, sizeof others, &others) != 0) return;
  ::sched_setaffinity(0, sizeof allowed, &allowed);
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

}  // namespace lockstep
