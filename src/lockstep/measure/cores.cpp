#include "lockstep/measure/cores.h"

#include <sched.h>

#include <algorithm>
#include <string>

#include "lockstep/base/cpu.h"

namespace lockstep::measure {

int cores_of_all_ranks(rendezvous::Meeting& meeting) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::string mine;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) mine += CPU_ISSET(cpu, &set) ? '1' : '0';
  const auto masks = meeting.exchange("bench/cores", mine);
  if (std::all_of(masks.begin(), masks.end(), [&](const std::string& mask) { return mask == mine; }))
    return allowed_cores();  // considers quotas, too
  int cores = 0;
  for (std::size_t cpu = 0; cpu < mine.size(); ++cpu)
    cores += std::any_of(masks.begin(), masks.end(), [&](const std::string& mask) { return mask[cpu] == '1'; }) ? 1 : 0;
  return cores;
}

}  // namespace lockstep::measure
