#include "lockstep/parallel/pipeline/schedule/lower.h"

namespace lockstep::pipeline {

Schedule lower(const Schedule& schedule) {
  const bool has_sends = is_lowered(schedule);
  const auto apart = [&](int stage, int neighbour) {
    return neighbour >= 0 && neighbour < schedule.stages &&
           schedule.rank_of_stage[index_of(stage)] != schedule.rank_of_stage[static_cast<std::size_t>(neighbour)];
  };
  Schedule lowered = schedule;
  // region lower
  for (auto& list : lowered.actions) {
    std::vector<Action> longer;
    for (const Action& action : list) {
      const auto [stage, kind, microbatch] = action;
      if (is_recv(kind)) continue;  // is added again in front of the action that needs it
      const bool forward = kind == Kind::F;
      const bool backward = kind == Kind::B || kind == Kind::I;
      if (forward && apart(stage, stage - 1)) longer.push_back({stage, Kind::RECV_F, microbatch});
      if (backward && apart(stage, stage + 1)) longer.push_back({stage, Kind::RECV_B, microbatch});
      longer.push_back(action);
      if (has_sends) continue;
      if (forward && apart(stage, stage + 1)) longer.push_back({stage, Kind::SEND_F, microbatch});
      if (backward && apart(stage, stage - 1)) longer.push_back({stage, Kind::SEND_B, microbatch});
    }
    list = std::move(longer);
  }
  // endregion
  return lowered;
}

}  // namespace lockstep::pipeline
