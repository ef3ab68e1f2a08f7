#include "lockstep/parallel/pipeline/run/moments.h"

#include <algorithm>
#include <unordered_map>

namespace lockstep::pipeline {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

std::vector<Utilisation> utilisation(const std::vector<Timeline>& ranks) {
  std::unordered_map<Action, Clock::time_point> sent;
  Clock::time_point first = Clock::time_point::max();
  Clock::time_point last = Clock::time_point::min();
  for (const Timeline& rank : ranks)
    for (const auto& [action, began, ended] : rank.moments) {
      if (is_send(action.kind)) sent[action] = began;
      if (is_message(action.kind)) continue;
      first = std::min(first, began);
      last = std::max(last, ended);
    }
  std::vector<Utilisation> result;
  for (const Timeline& rank : ranks) {
    Utilisation mine;
    for (const auto& [action, began, ended] : rank.moments) {
      if (!is_message(action.kind)) mine.compute += seconds(ended - began);
      if (is_send(action.kind)) mine.communication += seconds(ended - began);
      if (!is_recv(action.kind)) continue;
      const auto send = sent.find(other_end(action));
      const auto there = send == sent.end() ? began : std::clamp(send->second, began, ended);
      mine.communication += seconds(ended - there);
    }
    mine.bubble = first > last ? 0 : std::max(0.0, seconds(last - first) - mine.compute - mine.communication);
    result.push_back(mine);
  }
  return result;
}

}  // namespace lockstep::pipeline
