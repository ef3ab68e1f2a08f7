#include "lockstep/launch/rank_table.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/launch/descendants.h"

namespace lockstep::launch {

RankTable::RankTable(int ranks, Watchdog& watchdog)
    : watchdog_(watchdog),
      others_(live_children()),
      ends_(static_cast<std::size_t>(ranks)),
      groups_(static_cast<std::size_t>(ranks)) {
  for (Rank rank = 0; rank < ranks; ++rank) ends_[index_of(rank)].rank = rank;
}

RankTable::~RankTable() {
  // There is something to do only after an error. SIGKILL takes effect at once, except on a process that the kernel
  // holds.
  const Deadline deadline = Deadline::in(2s);
  for (reap(); !nothing_left() && !deadline.passed(); reap()) {
    end_with(SIGKILL);
    std::this_thread::sleep_for(5ms);
  }
}

void RankTable::add(Rank rank, pid_t pid) {
  watchdog_.guard(rank, pid);
  ends_[index_of(rank)].pid = pid;
  groups_[index_of(rank)] = {.leader_lives = true, .empty = false};
}

std::vector<Rank> RankTable::reap() {
  std::vector<Rank> ended;
  ++round_;
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    for (RankEnd& end : ends_) {
      Group& group = groups_[index_of(end.rank)];
      if (end.pid != pid || !group.leader_lives) continue;
      group.leader_lives = false;
      end.status = status;
      end.round = round_;
      ended.push_back(end.rank);
    }
    // The process that was just reaped may have been the last of any group.
    for (const RankEnd& end : ends_) {
      Group& group = groups_[index_of(end.rank)];
      if (group.leader_lives || group.empty || ::kill(-end.pid, 0) == 0) continue;
      group.empty = true;
      watchdog_.release(end.rank);
    }
  }
  return ended;
}

void RankTable::pass_on(int signal) const {
  for (const RankEnd& end : ends_)
    if (!groups_[index_of(end.rank)].empty) ::kill(-end.pid, signal);
}

void RankTable::end_with(int signal) {
  for (RankEnd& end : ends_) {
    if (!groups_[index_of(end.rank)].leader_lives) continue;
    if (end.signalled == 0) end.stopped = is_stopped(end.pid);
    end.signalled = signal;
  }
  const auto adopted = children_outside_the_groups();
  pass_on(signal);
  for (const pid_t pid : adopted) ::kill(pid, signal);
  if (signal != SIGTERM) return;
  // A stopped process acts on SIGTERM only after it is continued.
  pass_on(SIGCONT);
  for (const pid_t pid : adopted) ::kill(pid, SIGCONT);
}

int RankTable::alive() const {
  return static_cast<int>(std::count_if(groups_.begin(), groups_.end(), [](const Group& g) { return g.leader_lives; }));
}

std::vector<Rank> RankTable::left_stopped() const {
  std::vector<Rank> stopped;
  bool some_ended = false;
  for (const RankEnd& end : ends_) {
    const Group& group = groups_[index_of(end.rank)];
    some_ended = some_ended || (end.pid != 0 && !group.leader_lives);
    if (!group.leader_lives) continue;
    // A rank that runs, or that a debugger holds, is left alone: whoever debugs a rank may take any time.
    if (!is_stopped_by_signal(end.pid)) return {};
    stopped.push_back(end.rank);
  }
  return some_ended ? stopped : std::vector<Rank>{};
}

std::vector<pid_t> RankTable::children_of_the_job() const {
  std::vector<pid_t> children = live_children();
  std::erase_if(children, [&](pid_t pid) { return std::find(others_.begin(), others_.end(), pid) != others_.end(); });
  return children;
}

std::vector<pid_t> RankTable::children_outside_the_groups() const {
  std::vector<pid_t> children = children_of_the_job();
  std::erase_if(children, [&](pid_t pid) {
    const pid_t group = ::getpgid(pid);
    return std::any_of(ends_.begin(), ends_.end(),
                       [&](const RankEnd& end) { return end.pid == group && !groups_[index_of(end.rank)].empty; });
  });
  return children;
}

bool RankTable::nothing_left() const {
  return std::all_of(groups_.begin(), groups_.end(), [](const Group& group) { return group.empty; }) &&
         children_of_the_job().empty();
}

}  // namespace lockstep::launch
