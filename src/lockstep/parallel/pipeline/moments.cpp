#include "lockstep/parallel/pipeline/moments.h"

#include <algorithm>
#include <unordered_map>

namespace lockstep::pipeline {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

std::vector<Utilisation> utilisation(const std::vector<Timeline>& ranks) {
  std::vector<Utilisation> result;
  if (ranks.empty()) return result;
  std::unordered_map<Action, Clock::time_point> sent;
  Clock::time_point first = ranks.front().began;
  Clock::time_point last = ranks.front().ended;
  for (const Timeline& rank : ranks) {
    first = std::min(first, rank.began);
    last = std::max(last, rank.ended);
    for (const Moment& moment : rank.moments)
      if (is_send(moment.action.kind)) sent[moment.action] = moment.began;
  }
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
    mine.bubble = std::max(0.0, seconds(last - first) - mine.compute - mine.communication);
    result.push_back(mine);
  }
  return result;
}

}  // namespace lockstep::pipeline
