#include "lockstep/parallel/pipeline/schedule/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

namespace lockstep::pipeline {
namespace {

std::size_t idx(int i) { return static_cast<std::size_t>(i); }

class Simulator {
 public:
  Simulator(const Schedule& schedule, const StageTimes& times, Sends sends)
      : schedule_(schedule), times_(times), sends_(sends), clocks_(idx(schedule.ranks)) {
    result_.ranks.resize(idx(schedule.ranks));
  }

  // A rank is visited only when it may be able to continue: at the start, and when the message that it waits for is
  // sent. So the running time is linear in the number of actions.
  Simulation run() {
    for (Rank rank = 0; rank < schedule_.ranks; ++rank) awake_.push_back(rank);
    while (!awake_.empty()) {
      const Rank rank = awake_.front();
      awake_.pop_front();
      while (advance(rank)) {
      }
    }
    for (const double clock : clocks_) result_.makespan = std::max(result_.makespan, clock);
    find_cycle();
    return std::move(result_);
  }

 private:
  bool advance(Rank rank) {
    const Action* action = current(rank);
    if (action == nullptr) return false;
    if (!is_message(action->kind)) {
      finish(rank, clocks_[idx(rank)] + times_.of(*action));
      return true;
    }
    return sends_ == Sends::blocking ? meet(rank, *action) : pass_on(rank, *action);
  }

  bool pass_on(Rank rank, const Action& action) {
    if (is_send(action.kind)) {
      const Action receive = other_end(action);
      const Rank peer = peer_of(action);
      sent_.emplace(receive, clocks_[idx(rank)]);
      if (const Action* its_action = current(peer); its_action != nullptr && *its_action == receive)
        awake_.push_back(peer);
      finish(rank, clocks_[idx(rank)]);
      return true;
    }
    const auto message = sent_.find(action);
    if (message == sent_.end()) return false;
    wait_until(rank, message->second);
    finish(rank, clocks_[idx(rank)]);
    return true;
  }

  // Either both sides continue or neither.
  bool meet(Rank rank, const Action& action) {
    const Rank peer = peer_of(action);
    const Action* its_action = current(peer);
    if (its_action == nullptr || *its_action != other_end(action)) return false;
    const double moment = std::max(clocks_[idx(rank)], clocks_[idx(peer)]);
    for (const Rank side : {rank, peer}) {
      wait_until(side, moment);
      finish(side, moment);
    }
    awake_.push_back(peer);
    return true;
  }

  void wait_until(Rank rank, double moment) { clocks_[idx(rank)] = std::max(clocks_[idx(rank)], moment); }

  void finish(Rank rank, double end) {
    result_.ranks[idx(rank)].push_back({*current(rank), clocks_[idx(rank)], end});
    clocks_[idx(rank)] = end;
  }

  // The next action of the rank; nullptr at the end of its list.
  const Action* current(Rank rank) const {
    const auto& list = schedule_.actions[idx(rank)];
    const std::size_t step = result_.ranks[idx(rank)].size();
    return step < list.size() ? &list[step] : nullptr;
  }

  Rank peer_of(const Action& message) const { return schedule_.rank_of_stage[idx(other_end(message).stage)]; }

  // A stuck rank waits for exactly one other rank, which is stuck too. So following the waits always leads into a
  // cycle.
  void find_cycle() {
    for (Rank rank = 0; rank < schedule_.ranks; ++rank) {
      if (current(rank) == nullptr) continue;
      std::vector<Rank> path;
      std::vector<bool> visited(idx(schedule_.ranks));
      while (!visited[idx(rank)]) {
        visited[idx(rank)] = true;
        path.push_back(rank);
        rank = peer_of(*current(rank));
      }
      path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
      std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
      for (const Rank member : path) result_.cycle.push_back(wait_of(member));
      return;
    }
  }

  Wait wait_of(Rank rank) const {
    const Action& action = *current(rank);
    const Rank peer = peer_of(action);
    const auto& list = schedule_.actions[idx(peer)];
    const auto place = std::find(list.begin(), list.end(), other_end(action));
    return {rank, static_cast<int>(result_.ranks[idx(rank)].size()), action, peer,
            static_cast<int>(place - list.begin())};
  }

  const Schedule& schedule_;
  const StageTimes times_;
  const Sends sends_;
  std::vector<double> clocks_;
  std::deque<Rank> awake_;                   // ranks that may be able to continue
  std::unordered_map<Action, double> sent_;  // for each receive, when its message was sent
  Simulation result_;
};

}  // namespace

double Times::of(Kind kind) const {
  switch (kind) {
    case Kind::F:
      return forward;
    case Kind::B:
      return input + weight;
    case Kind::I:
      return input;
    case Kind::W:
      return weight;
    default:
      return 0;
  }
}

Simulation simulate(const Schedule& lowered, const StageTimes& times, Sends sends) {
  return Simulator(lowered, times, sends).run();
}

std::string describe(const Wait& wait) {
  return fmt::format("rank {} at step {} ({}) waits for {}, step {} of rank {}", wait.rank, wait.step,
                     to_string(wait.action), to_string(other_end(wait.action)), wait.its_step, wait.peer);
}

}  // namespace lockstep::pipeline
