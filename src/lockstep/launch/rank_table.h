// The ranks as processes: which live, how the others ended, and how to reach them all.
//
// Used by one thread. While it lives, all children of this process are reaped here, so the process should have none of
// its own.
//
// A process group's number stays taken while the group has a member. Adoption makes this process the parent of
// every member whose own parent died, so the number comes free by a wait of ours, and we look at once: a group that is
// found empty is never signalled again, and a stranger who gets its number is safe.
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

#include "lockstep/base/types.h"
#include "lockstep/launch/report.h"
#include "lockstep/launch/watchdog.h"

namespace lockstep::launch {

class RankTable {
 public:
  RankTable(int ranks, Watchdog& watchdog);
  // Whatever happened, nothing of the job is left: SIGKILL to all that is still there.
  ~RankTable();
  RankTable(const RankTable&) = delete;
  RankTable& operator=(const RankTable&) = delete;

  void add(Rank rank, pid_t pid);

  // The ranks that have ended since the last call.
  std::vector<Rank> reap();
  // To every rank that lives, with its children, and to children that ranks left behind. Ranks that end after it were
  // ended by us.
  void end_with(int signal);
  // The same, but the rank's life stays its own affair: SIGUSR1, SIGSTOP, SIGCONT.
  void pass_on(int signal) const;

  int alive() const;  // ranks, not their children
  // The ranks that live, if there are any, all of them are stopped, and another rank has ended; else none.
  std::vector<Rank> left_stopped() const;
  // No rank lives, nor anything that a rank started.
  bool nothing_left() const;
  // How each rank ended; meaningful for those that have.
  std::vector<RankEnd>& ends() { return ends_; }

 private:
  struct Group {
    bool leader_lives = false;
    bool empty = true;
  };

  // Ranks, and what they started and left behind: this process has adopted it.
  std::vector<pid_t> children_of_the_job() const;
  // Those of them that a signal to the ranks' groups does not reach. A rank must not get the same signal twice: the
  // second one would interrupt what its handler is doing.
  std::vector<pid_t> children_outside_the_groups() const;

  Watchdog& watchdog_;
  const std::vector<pid_t> others_;  // children that were there before any rank: the watchdog, and a shell's leftovers
  std::vector<RankEnd> ends_;
  std::vector<Group> groups_;  // by rank
  int round_ = 0;
};

}  // namespace lockstep::launch
