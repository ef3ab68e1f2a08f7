#include "lockstep/parallel/pipeline/schedule/check.h"

#include <fmt/format.h>

#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace lockstep::pipeline {
namespace {

struct Place {
  Rank rank;
  int step;
};

// Thrown to end the search; find_fault() returns its text.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : schedule_(schedule) {}

  void check() {
    check_shape();
    visit([this](Place place, const Action& action) { enter(place, action); });
    check_nothing_missing();
    if (is_lowered_) visit([this](Place place, const Action& action) { check_other_end(place, action); });
    visit([this](Place place, const Action& action) { check_order(place, action); });
  }

 private:
  template <typename Visitor>
  void visit(Visitor&& visitor) {
    for (Rank rank = 0; rank < schedule_.ranks; ++rank) {
      int step = 0;
      for (const Action& action : schedule_.actions[index_of(rank)]) visitor({rank, step++}, action);
    }
  }

  [[noreturn]] static void refuse(Place place, const Action& action, const std::string& what) {
    throw Fault(fmt::format("rank {}, step {}: {} {}", place.rank, place.step, to_string(action), what));
  }

  void check_shape() {
    const auto& s = schedule_;
    if (s.stages < 1 || s.ranks < 1 || s.microbatches < 1)
      throw Fault(fmt::format("{} stages, {} ranks and {} microbatches: a schedule has at least one of each", s.stages,
                              s.ranks, s.microbatches));
    if (std::cmp_not_equal(s.actions.size(), s.ranks))
      throw Fault(fmt::format("there are {} lists of actions for {} ranks", s.actions.size(), s.ranks));
    if (std::cmp_not_equal(s.rank_of_stage.size(), s.stages))
      throw Fault(fmt::format("{} stages have a rank, of {}", s.rank_of_stage.size(), s.stages));
    for (int stage = 0; stage < s.stages; ++stage)
      if (rank_of(stage) < 0 || rank_of(stage) >= s.ranks)
        throw Fault(fmt::format("stage {} is on rank {}, of {} ranks", stage, rank_of(stage), s.ranks));
  }

  // Enters an action into the table of places, after checking that it may be there at all.
  void enter(Place place, const Action& action) {
    if (action.stage < 0 || action.stage >= schedule_.stages)
      refuse(place, action, fmt::format("is of a stage that is not there: stages are 0 to {}", schedule_.stages - 1));
    if (action.microbatch < 0 || action.microbatch >= schedule_.microbatches)
      refuse(place, action, fmt::format("is of a microbatch that is not there: they are 0 to {}", last_microbatch()));
    if (rank_of(action.stage) != place.rank)
      refuse(place, action,
             fmt::format("is on the wrong rank: stage {} is on rank {}", action.stage, rank_of(action.stage)));
    const auto [found, fresh] = places_.try_emplace(action, place);
    if (!fresh) refuse(place, action, fmt::format("is there twice: also at step {}", found->second.step));
  }

  void check_nothing_missing() {
    for (int stage = 0; stage < schedule_.stages; ++stage)
      for (int m = 0; m < schedule_.microbatches; ++m) {
        const Action whole{stage, Kind::B, m};
        const Action input{stage, Kind::I, m};
        const Action weight{stage, Kind::W, m};
        require({stage, Kind::F, m});
        const Action& half = has(input) ? input : weight;
        if (has(whole) && has(half))
          refuse(places_.at(half), half,
                 fmt::format("does again what {} does: a backward is B, or I and W", to_string(whole)));
        if (has(whole)) continue;
        if (!has(half)) require(whole);
        require(input);
        require(weight);
      }
  }

  void check_other_end(Place place, const Action& action) {
    if (!is_message(action.kind)) return;
    const Action other = other_end(action);
    if (other.stage < 0 || other.stage >= schedule_.stages)
      refuse(place, action, fmt::format("has no other end: there is no stage {}", other.stage));
    if (rank_of(other.stage) == place.rank)
      refuse(place, action, fmt::format("is not needed: stage {} is on the same rank", other.stage));
    if (!has(other))
      refuse(place, action,
             fmt::format("{}: {} is missing on rank {}", is_send(action.kind) ? "is never received" : "waits for ever",
                         to_string(other), rank_of(other.stage)));
  }

  void check_order(Place place, const Action& action) {
    const auto [stage, kind, m] = action;
    const bool backward = kind == Kind::B || kind == Kind::I;
    if (backward || kind == Kind::SEND_F) check_after(place, action, {stage, Kind::F, m});
    if (kind == Kind::W) check_after(place, action, {stage, Kind::I, m});
    if (kind == Kind::SEND_B) check_after(place, action, backward_of(stage, m));
    if (kind == Kind::F && stage > 0) check_input(place, action, {stage - 1, Kind::F, m}, {stage, Kind::RECV_F, m});
    if (backward && stage + 1 < schedule_.stages)
      check_input(place, action, backward_of(stage + 1, m), {stage, Kind::RECV_B, m});
  }

  // The input of an action is either made on the same rank or received.
  void check_input(Place place, const Action& action, const Action& maker, const Action& receive) {
    if (rank_of(maker.stage) == place.rank) return check_after(place, action, maker);
    if (!is_lowered_) return;
    if (!has(receive)) refuse(place, action, fmt::format("needs {}, which is missing", to_string(receive)));
    check_after(place, action, receive);
  }

  void check_after(Place place, const Action& action, const Action& needed) {
    const Place where = places_.at(needed);
    if (where.step > place.step)
      refuse(place, action, fmt::format("comes before {}, which is at step {}", to_string(needed), where.step));
  }

  void require(const Action& action) {
    if (!has(action))
      throw Fault(fmt::format("{} is missing: stage {} is on rank {}, and needs it for microbatch {} of {}",
                              to_string(action), action.stage, rank_of(action.stage), action.microbatch,
                              schedule_.microbatches));
  }

  Action backward_of(int stage, int m) const {
    const Action whole{stage, Kind::B, m};
    return has(whole) ? whole : Action{stage, Kind::I, m};
  }
  bool has(const Action& action) const { return places_.contains(action); }
  Rank rank_of(int stage) const { return schedule_.rank_of_stage[index_of(stage)]; }
  int last_microbatch() const { return schedule_.microbatches - 1; }

  const Schedule& schedule_;
  const bool is_lowered_ = is_lowered(schedule_);
  std::unordered_map<Action, Place> places_;
};

}  // namespace

std::string find_fault(const Schedule& schedule) {
  try {
    Checker(schedule).check();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "";
}

}  // namespace lockstep::pipeline
