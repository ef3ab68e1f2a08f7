// The environment of a rank: the launcher's own, and the variables that say which rank it is.
#pragma once

#include <string>
#include <vector>

#include "lockstep/types.h"

namespace lockstep::launch {

// What is the same for all ranks of a job.
struct JobFacts {
  int ranks = 1;
  std::string master_addr;
  int master_port = 0;
  std::string store;  // address of the store that the launcher serves
  std::string secret;
  int launcher_pid = 0;
  int threads = 1;  // OMP_NUM_THREADS, unless the user set it
};

// Returns texts of the form "NAME=value". `inherited` has the form of environ(7). A variable that is set here replaces
// the inherited one, except OMP_NUM_THREADS and PYTHONUNBUFFERED, which the user may set.
std::vector<std::string> rank_environment(const JobFacts& job, Rank rank, const std::vector<std::string>& inherited);

}  // namespace lockstep::launch
