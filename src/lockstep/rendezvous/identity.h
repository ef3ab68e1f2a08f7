// Finds out which rank this process is and where the ranks meet. Both are read from the environment, whoever set it:
// `lockstep run`, torchrun, Open MPI's or MPICH's mpirun, srun, or a shell loop that exports RANK and WORLD_SIZE.
#pragma once

#include <string>

#include "lockstep/rendezvous/address.h"
#include "lockstep/types.h"

namespace lockstep::rendezvous {

// Which rank of which world this process is.
struct Identity {
  Rank rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;                  // ranks on this host, as far as the variables tell
  int generation = 0;                  // number of restarts of this job so far
  bool one_host = true;                // all ranks are on this host, as far as the variables tell
  std::string source = "no launcher";  // which variables were used, for messages
};

// The identity that the environment describes; a world of one if no variable is set. Throws UsageError if the variables
// contradict each other.
Identity identity_from_environment();

// The place where the ranks of a job meet.
struct Place {
  Address address;
  std::string secret;
  bool serve = false;        // this process serves the store (it is rank 0, without `lockstep run`)
  bool by_launcher = false;  // `lockstep run` serves the store; otherwise rank 0 does
  bool check_uid = false;    // both ends of the Unix socket check the other's user id, so no secret is needed
};

// The place that the environment describes. It is LOCKSTEP_STORE if that is set. Otherwise, if all ranks are on one
// host, it is a Unix socket that is named after the user and the job. On several hosts it is MASTER_ADDR and
// MASTER_PORT. The secret comes from secret.h. Throws UsageError if a secret is needed and missing, or if ranks on
// several hosts have no address.
Place place_from_environment(const Identity& identity);

// A text that identifies this job on this host. It is made from the first of these that is set: LOCKSTEP_JOB,
// torchrun's run id and port, MASTER_ADDR and MASTER_PORT, the PMIx namespace, Slurm's job and step. If none is set, it
// is made from the process that started all ranks.
std::string job_name();

// A text that identifies the host. Two processes with the same text share a kernel, a network and a process table, so
// they can share memory, Unix sockets and pids. Containers on one machine usually have different texts and count as
// several hosts.
std::string host_identity();

// The start time of a process in clock ticks since boot, or 0 if it has ended. Together with the pid it identifies a
// process for ever. Throws SystemError if it cannot be found out, for example because no descriptor is left.
std::uint64_t process_start_time(int pid);
// False if the process with this pid and start time has certainly ended. True if it is alive, or if that cannot be
// found out.
bool process_is(int pid, std::uint64_t started) noexcept;

}  // namespace lockstep::rendezvous
