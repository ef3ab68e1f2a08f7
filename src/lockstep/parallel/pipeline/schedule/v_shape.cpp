// V-Half and V-Min (Qi et al., 2024, "Pipeline Parallelism with Controllable Memory"): a V as in ZBV, which holds half
// or a third of the activations that 1F1B's first rank holds.
//
// The number of activations that are held follows from the path of one microbatch. It goes down the ranks and comes
// back, and its gradient does the same: four passes. The next microbatch follows 6 slots later, because a rank has 6
// actions per microbatch (F, I and W of two stages). So a rank holds about as many activations as the slots that a
// microbatch's passes take, divided by 6. The slower the passes, the more activations are held, and the less a rank has
// to wait:
//
//            slots from rank to rank          held, in whole microbatches    idle slots of a rank, about
//            downwards     upwards            (two activations each)
//   V-Min        1            1               floor((p+4)/3)                 4p
//   V-Half       2            1               floor((p+2)/2)                 3p
//   1F1B                                      p                              6p
//
// The timetable of F and I is made first for one microbatch, and then repeated. It gives the order in which each rank
// does them. Then the ranks are simulated, slot by slot: W runs when a rank would be idle, or when it holds too many
// activations for another forward.
#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <utility>

#include "lockstep/parallel/pipeline/schedule/lists.h"

namespace lockstep::pipeline {
namespace {

constexpr int kPeriod = 6;
constexpr int kNever = std::numeric_limits<int>::max();

// The slots of microbatch 0 on one rank: F down, F up, I down, I up.
using Slots = std::array<int, 4>;

// `turns` are the numbers of slots from the end of one pass to the start of the next.
Slots slots_of(Rank rank, int ranks, int down, int up, const std::array<int, 3>& turns) {
  const int last = ranks - 1;
  const int forward_up = down * last + turns[0];
  const int input_down = forward_up + up * last + turns[1];
  const int input_up = input_down + down * last + turns[2];
  return {down * rank, forward_up + up * (last - rank), input_down + down * rank, input_up + up * (last - rank)};
}

// True if no two actions of a rank fall on the same slot when the timetable is repeated every 6 slots.
bool is_free_of_collisions(int ranks, int down, int up, const std::array<int, 3>& turns) {
  for (Rank rank = 0; rank < std::min(ranks, kPeriod); ++rank) {  // modulo 6, the other ranks are the same
    std::array<bool, kPeriod> taken{};
    for (const int slot : slots_of(rank, ranks, down, up, turns))
      if (std::exchange(taken[index_of(slot % kPeriod)], true)) return false;
  }
  return true;
}

// The shortest turns without a collision.
std::array<int, 3> find_turns(int ranks, int down, int up) {
  for (int sum = 3; sum <= 3 * kPeriod; ++sum)
    for (int first = 1; first <= std::min(kPeriod, sum - 2); ++first)
      for (int second = 1; second <= std::min(kPeriod, sum - first - 1); ++second) {
        const std::array<int, 3> turns{first, second, sum - first - second};
        if (is_free_of_collisions(ranks, down, up, turns)) return turns;
      }
  return {1, 1, 1};  // never reached: the tests try all numbers of ranks modulo 6
}

// Each rank's F and I, in the order of the timetable.
Lists timetable(int ranks, int microbatches, int down, int up) {
  const std::array<int, 3> turns = find_turns(ranks, down, up);
  Lists lists;
  for (Rank rank = 0; rank < ranks; ++rank) {
    const Slots slots = slots_of(rank, ranks, down, up, turns);
    const int back = 2 * ranks - 1 - rank;
    std::vector<std::pair<int, Action>> timed;
    for (int m = 0; m < microbatches; ++m) {
      const int start = kPeriod * m;
      timed.push_back({start + slots[0], {rank, Kind::F, m}});
      timed.push_back({start + slots[1], {back, Kind::F, m}});
      timed.push_back({start + slots[2], {back, Kind::I, m}});
      timed.push_back({start + slots[3], {rank, Kind::I, m}});
    }
    std::sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Action>& list = lists.emplace_back();
    for (const auto& [slot, action] : timed) list.push_back(action);
  }
  return lists;
}

// Simulates the ranks, one action per slot, and inserts the W actions.
class WeightFiller {
 public:
  WeightFiller(Lists order, int microbatches, int most_held)
      : order_(std::move(order)),
        stages_(2 * static_cast<int>(order_.size())),
        microbatches_(microbatches),
        most_held_(most_held),
        ranks_(order_.size()),
        forward_ends_(index_of(stages_ * microbatches), kNever),
        input_ends_(forward_ends_) {}

  Lists run() {
    const std::size_t each = index_of(6 * microbatches_);
    std::size_t complete = 0;
    for (int slot = 0; complete < order_.size(); ++slot)
      for (std::size_t rank = 0; rank < order_.size(); ++rank) {
        std::vector<Action>& list = ranks_[rank].list;
        if (list.size() == each) continue;
        advance(rank, slot);
        if (list.size() == each) ++complete;
      }
    Lists lists;
    for (State& rank : ranks_) lists.push_back(std::move(rank.list));
    return lists;
  }

 private:
  struct State {
    std::size_t next = 0;  // position in the order of F and I
    int held = 0;
    std::deque<Action> put_off;  // W actions that can run later
    std::vector<Action> list;
  };

  void advance(std::size_t rank, int slot) {
    State& state = ranks_[rank];
    const Action* action = state.next < order_[rank].size() ? &order_[rank][state.next] : nullptr;
    const bool full = action != nullptr && action->kind == Kind::F && state.held >= most_held_;
    if (action != nullptr && is_ready(*action, slot) && !(full && !state.put_off.empty())) {
      ++state.next;
      state.list.push_back(*action);
      ends_of(*action)[place(action->stage, action->microbatch)] = slot + 1;
      if (action->kind == Kind::F) ++state.held;
      if (action->kind == Kind::I) state.put_off.push_back({action->stage, Kind::W, action->microbatch});
    } else if (!state.put_off.empty()) {
      --state.held;
      state.list.push_back(state.put_off.front());
      state.put_off.pop_front();
    }
  }

  bool is_ready(const Action& action, int slot) const {
    const auto [stage, kind, m] = action;
    if (kind == Kind::F) return stage == 0 || forward_ends_[place(stage - 1, m)] <= slot;
    return forward_ends_[place(stage, m)] <= slot && (stage + 1 == stages_ || input_ends_[place(stage + 1, m)] <= slot);
  }

  std::vector<int>& ends_of(const Action& action) { return action.kind == Kind::F ? forward_ends_ : input_ends_; }
  std::size_t place(int stage, int microbatch) const { return index_of(stage * microbatches_ + microbatch); }

  const Lists order_;  // each rank's order of F and I
  const int stages_, microbatches_, most_held_;
  std::vector<State> ranks_;
  std::vector<int> forward_ends_;  // [stage, microbatch], the slot from which on its result is there
  std::vector<int> input_ends_;
};

}  // namespace

// region lists
Lists v_half(int ranks, int microbatches) {
  return WeightFiller(timetable(ranks, microbatches, 2, 1), microbatches, 2 * ((ranks + 2) / 2)).run();
}

Lists v_min(int ranks, int microbatches) {
  return WeightFiller(timetable(ranks, microbatches, 1, 1), microbatches, 2 * ((ranks + 4) / 3)).run();
}
// endregion

}  // namespace lockstep::pipeline
