#include "lockstep/launch/shared_errors.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/launch/report.h"

namespace lockstep::launch {

std::string SharedErrors::take(Rank rank, const std::string& prefix, std::string_view lines, Clock::time_point now) {
  constexpr std::string_view kMark = "lockstep: error: ";
  std::string others;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n') + 1);  // every line has a newline
    lines.remove_prefix(line.empty() ? lines.size() : line.size());
    const std::string_view text = line.substr(std::min(prefix.size(), line.size()));
    if (!line.starts_with(prefix) || !text.starts_with(kMark)) {
      others += line;
      continue;
    }
    const auto same = std::find_if(held_.begin(), held_.end(), [&](const Held& held) { return held.text == text; });
    if (same == held_.end())
      held_.push_back({std::string(text), prefix, {rank}, now});
    else if (std::find(same->ranks.begin(), same->ranks.end(), rank) == same->ranks.end())
      same->ranks.push_back(rank);
  }
  return others;
}

std::string SharedErrors::due(Clock::time_point now, bool all) {
  std::string text;
  std::erase_if(held_, [&](Held& held) {
    if (!all && now - held.since < kHeldFor) return false;
    std::sort(held.ranks.begin(), held.ranks.end());
    text += (held.ranks.size() == 1 ? held.prefix : fmt::format("[{}] ", name_ranks(held.ranks))) + held.text;
    return true;
  });
  return text;
}

Clock::time_point SharedErrors::next_due() const {
  // Held lines are in the order in which they came, so the first one is due first.
  return held_.empty() ? Clock::time_point::max() : held_.front().since + kHeldFor;
}

}  // namespace lockstep::launch
