// The environment of a rank: the launcher's own, with the variables that say who the rank is.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/types.h"

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

// "NAME=value" texts. `inherited` is as in environ(7); a variable set here replaces the inherited one.
std::vector<std::string> rank_environment(const JobFacts& job, Rank rank, const std::vector<std::string>& inherited);

}  // namespace lockstep::launch
