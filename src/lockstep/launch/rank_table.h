// The processes of the ranks: which are alive, how the others ended, and how to send signals to all of them.
//
// Used by one thread. While it exists, it reaps all children of this process, so the process should have no other
// children.
//
// The number of a process group is not reused while the group has a member. Adoption (descendants.h) makes this process
// the parent of every member whose own parent died. So the number becomes free only when this process reaps the last
// member, and reap() checks for that at once. A group that was found empty is never signalled again, so an unrelated
// process that gets its number is safe.
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

#include "lockstep/launch/report.h"
#include "lockstep/launch/watchdog.h"
#include "lockstep/types.h"

namespace lockstep::launch {

class RankTable {
 public:
  RankTable(int ranks, Watchdog& watchdog);
  // Leaves nothing of the job behind, whatever happened: sends SIGKILL to everything that is still there, and waits at
  // most two seconds for its end.
  ~RankTable();
  RankTable(const RankTable&) = delete;
  RankTable& operator=(const RankTable&) = delete;

  void add(Rank rank, pid_t pid);

  // Reaps children, and returns the ranks that have ended since the last call.
  std::vector<Rank> reap();
  // Sends a signal to every rank that is alive, to its children, and to processes that ranks left behind. SIGTERM also
  // continues those that are stopped. A rank that ends after this call counts as ended by the launcher.
  void end_with(int signal);
  // Passes a signal such as SIGUSR1, SIGSTOP or SIGCONT on to the process groups of the ranks. A rank that ends because
  // of it does not count as ended by the launcher.
  void pass_on(int signal) const;

  int alive() const;  // the number of ranks that are alive, without their children
  // The ranks that are alive, if all of them are stopped by a signal and another rank has ended; otherwise none.
  std::vector<Rank> left_stopped() const;
  // True if neither a rank nor anything that a rank started is alive.
  bool nothing_left() const;
  // How each rank ended, by rank. It is meaningful only for ranks that have ended.
  std::vector<RankEnd>& ends() { return ends_; }

 private:
  struct Group {
    bool leader_lives = false;
    bool empty = true;
  };

  // The children of this process that belong to the job: ranks, and adopted processes that ranks started and left
  // behind.
  std::vector<pid_t> children_of_the_job() const;
  // Those of them that a signal to the groups of the ranks does not reach. Only they get the signal one by one: if a
  // rank got the same signal twice, the second one would interrupt what its handler is doing.
  std::vector<pid_t> children_outside_the_groups() const;

  Watchdog& watchdog_;
  // Children that existed before any rank: the watchdog, and what a shell left behind.
  const std::vector<pid_t> others_;
  std::vector<RankEnd> ends_;
  std::vector<Group> groups_;  // by rank
  int round_ = 0;
};

}  // namespace lockstep::launch
