#include "lockstep/parallel/pipeline/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/parallel/pipeline/lists.h"

namespace lockstep::pipeline {
namespace {

constexpr long kMaxForwards = 1'000'000;  // more is a typing error, and would fill the memory

void check(const std::string& name, int ranks, int microbatches, int virtual_stages) {
  const auto& names = schedule_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw UsageError(fmt::format("there is no schedule '{}'", name),
                     closest(name, names).value_or(fmt::format("{}", fmt::join(names, ", "))));
  if (ranks < 1 || microbatches < 1 || virtual_stages < 1)
    throw UsageError(fmt::format("{} with {} stages, {} microbatches and {} virtual stages a rank", name, ranks,
                                 microbatches, virtual_stages),
                     "at least 1 of each");
  if (virtual_stages != 1 && name != "interleaved")
    throw UsageError(fmt::format("{} has one stage a rank, not {}", name, virtual_stages),
                     fmt::format("interleaved, with --virtual-stages {}", virtual_stages));
  const long forwards = static_cast<long>(ranks) * virtual_stages;
  if (forwards > kMaxForwards || forwards * microbatches > kMaxForwards)
    throw UsageError(fmt::format("{} stages and {} microbatches are too many for a list", forwards, microbatches),
                     fmt::format("stages times microbatches up to {}", kMaxForwards));
}

std::vector<Action> list_of(const std::string& name, Rank rank, int ranks, int microbatches, int virtual_stages) {
  if (name == "naive") return naive(rank, microbatches);
  if (name == "gpipe") return gpipe(rank, microbatches);
  if (name == "1f1b") return one_forward_one_backward(rank, ranks, microbatches);
  if (name == "interleaved") return interleaved(rank, ranks, microbatches, virtual_stages);
  return zero_bubble_h1(rank, ranks, microbatches);
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"};
  return names;
}

Schedule make_schedule(const std::string& name, int ranks, int microbatches, std::optional<int> virtual_stages) {
  const int a_rank = virtual_stages.value_or(name == "interleaved" ? 2 : 1);
  check(name, ranks, microbatches, a_rank);
  Schedule schedule{name, ranks * a_rank, ranks, microbatches, {}, {}};
  for (int stage = 0; stage < schedule.stages; ++stage) schedule.rank_of_stage.push_back(stage % ranks);
  for (Rank rank = 0; rank < ranks; ++rank)
    schedule.actions.push_back(list_of(name, rank, ranks, microbatches, a_rank));
  return schedule;
}

void refuse_stages(int stages, std::int64_t layers) {
  throw UsageError(fmt::format("{} stages for a network of {} layers: every stage needs one", stages, layers),
                   fmt::format("at most {} stages, or a deeper network", layers));
}

bool is_lowered(const Schedule& schedule) {
  const auto has_message = [](const std::vector<Action>& list) {
    return std::any_of(list.begin(), list.end(), [](const Action& action) { return is_message(action.kind); });
  };
  return std::any_of(schedule.actions.begin(), schedule.actions.end(), has_message);
}

int virtual_stages(const Schedule& schedule) {
  std::vector<int> counts(static_cast<std::size_t>(schedule.ranks));
  for (const Rank rank : schedule.rank_of_stage) ++counts[static_cast<std::size_t>(rank)];
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

}  // namespace lockstep::pipeline
