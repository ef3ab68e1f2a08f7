// Who am I, and where do my peers meet? Both are read from the environment, whoever set it: `lockstep run`, torchrun,
// Open MPI's or MPICH's mpirun, srun, or a shell loop that exports RANK and WORLD_SIZE.
#pragma once

#include <string>

#include "lockstep/base/types.h"
#include "lockstep/rendezvous/address.h"

namespace lockstep::rendezvous {

struct Identity {
  Rank rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;                  // ranks on this host, as far as the variables tell
  int generation = 0;                  // counts restarts of the same job
  bool one_host = true;                // as far as the variables tell
  std::string source = "no launcher";  // which variables spoke, for messages
};

// A world of one when no variable speaks. Throws UsageError when they contradict each other.
Identity identity_from_environment();

// The place where the ranks of a job meet.
struct Place {
  Address address;
  std::string secret;
  bool serve = false;        // this process serves the store (rank 0 without `lockstep run`)
  bool by_launcher = false;  // `lockstep run` serves it; otherwise rank 0 does
  bool check_uid = false;    // on a Unix socket the kernel vouches for the user and no secret is needed
};

// LOCKSTEP_STORE and the secret (secret.h) if set; on one host a Unix socket named after the user and the job; on
// several MASTER_ADDR and MASTER_PORT. Throws UsageError when a secret is needed and missing.
Place place_from_environment(const Identity& identity);

// What names this job on this host: LOCKSTEP_JOB, torchrun's run id and port, the PMIx namespace, Slurm's job and
// step, or else the process that started all ranks.
std::string job_name();

// Two processes with the same text share a kernel, a network and a process table, so they can share memory, Unix
// sockets and pids. Containers on one machine usually differ here and count as several hosts.
std::string host_identity();

// A process's start time in clock ticks since boot: with the pid it names a process for good. 0 when it has ended.
// Throws SystemError when that cannot be found out, for example because no descriptor is left.
std::uint64_t process_start_time(int pid);
// False when the process with this pid and start time has certainly ended; true when it lives or nobody can tell.
bool process_is(int pid, std::uint64_t started) noexcept;

}  // namespace lockstep::rendezvous
