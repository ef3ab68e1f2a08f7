#include "lockstep/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/base/suggest.h"
#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/schedule/lists.h"

namespace lockstep::pipeline {
namespace {

constexpr long kMaxForwards = 1'000'000;  // more is a typing error, and would fill the memory

enum class Placement {
  loop,  // stage s on rank s mod p
  v,     // stages r and 2p-1-r on rank r
};

struct BuiltIn {
  std::string name;
  int stages_per_rank;  // the default
  Placement placement = Placement::loop;
  bool any_number = false;  // any number of stages per rank is allowed
};

const std::vector<BuiltIn>& built_ins() {
  static const std::vector<BuiltIn> all = {
      {"naive", 1},
      {"gpipe", 1},
      {"1f1b", 1},
      {"interleaved", 2, Placement::loop, true},
      {"zb-h1", 1},
      {"zb-h2", 1},
      {"zbv", 2, Placement::v},
      {"v-half", 2, Placement::v},
      {"v-min", 2, Placement::v},
      {"dualpipev", 2, Placement::v},
  };
  return all;
}

const BuiltIn& built_in(const std::string& name) {
  const auto& all = built_ins();
  const auto found = std::find_if(all.begin(), all.end(), [&](const BuiltIn& one) { return one.name == name; });
  if (found != all.end()) return *found;
  const auto& names = schedule_names();
  throw UsageError(fmt::format("there is no schedule '{}'", name),
                   closest(name, names).value_or(fmt::format("{}", fmt::join(names, ", "))));
}

void check(const BuiltIn& kind, int ranks, int microbatches, int virtual_stages) {
  if (ranks < 1 || microbatches < 1 || virtual_stages < 1)
    throw UsageError(fmt::format("{} with {} stages, {} microbatches and {} virtual stages per rank", kind.name, ranks,
                                 microbatches, virtual_stages),
                     "at least 1 of each");
  if (virtual_stages != kind.stages_per_rank && !kind.any_number)
    throw UsageError(fmt::format("{} has {} per rank, not {}", kind.name,
                                 kind.stages_per_rank == 1 ? "one stage" : "two stages", virtual_stages),
                     fmt::format("interleaved, with `virtual_stages` {}", virtual_stages));
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
  if (name == "zbv") return zbv(rank, ranks, microbatches);
  if (name == "dualpipev") return dualpipev(rank, ranks, microbatches);
  return zero_bubble(rank, ranks, microbatches, name == "zb-h1" ? 1 : 2);
}

Lists lists_of(const std::string& name, int ranks, int microbatches, int virtual_stages) {
  if (name == "v-half") return v_half(ranks, microbatches);
  if (name == "v-min") return v_min(ranks, microbatches);
  Lists lists;
  for (Rank rank = 0; rank < ranks; ++rank) lists.push_back(list_of(name, rank, ranks, microbatches, virtual_stages));
  return lists;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const BuiltIn& one : built_ins()) all.push_back(one.name);
    return all;
  }();
  return names;
}

Schedule make_schedule(const std::string& name, int ranks, int microbatches, std::optional<int> virtual_stages) {
  const BuiltIn& kind = built_in(name);
  const int per_rank = virtual_stages.value_or(kind.stages_per_rank);
  check(kind, ranks, microbatches, per_rank);
  Schedule schedule{name, ranks * per_rank, ranks, microbatches, {}, {}};
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const bool on_the_way_back = kind.placement == Placement::v && stage >= ranks;
    schedule.rank_of_stage.push_back(on_the_way_back ? schedule.stages - 1 - stage : stage % ranks);
  }
  schedule.actions = lists_of(name, ranks, microbatches, per_rank);
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
  for (const Rank rank : schedule.rank_of_stage) ++counts[index_of(rank)];
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

}  // namespace lockstep::pipeline
