#include "lockstep/collectives/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "lockstep/collectives/algorithms.h"
#include "lockstep/error.h"

namespace lockstep::collectives {
namespace {

using Maker = Plan (*)(Rank, int);

// Every algorithm of every op, in one place.
const std::map<std::pair<Op, Algorithm>, Maker>& makers() {
  static const std::map<std::pair<Op, Algorithm>, Maker> table{
      {{Op::all_reduce, Algorithm::naive}, naive::all_reduce},
      {{Op::all_reduce, Algorithm::exchange}, exchange::all_reduce},
      {{Op::all_reduce, Algorithm::tree}, tree::all_reduce},
      {{Op::all_reduce, Algorithm::ring}, ring::all_reduce},
      {{Op::all_reduce, Algorithm::halving_doubling}, halving_doubling::all_reduce},
      {{Op::all_reduce, Algorithm::ordered}, ordered::all_reduce},
      {{Op::reduce, Algorithm::naive}, naive::reduce},
      {{Op::reduce, Algorithm::tree}, tree::reduce},
      {{Op::reduce, Algorithm::ring}, ring::reduce},
      {{Op::reduce, Algorithm::ordered}, ordered::reduce},
      {{Op::broadcast, Algorithm::naive}, naive::broadcast},
      {{Op::broadcast, Algorithm::tree}, tree::broadcast},
      {{Op::broadcast, Algorithm::ring}, ring::broadcast},
      {{Op::scatter, Algorithm::naive}, naive::scatter},
      {{Op::scatter, Algorithm::tree}, tree::scatter},
      {{Op::gather, Algorithm::naive}, naive::gather},
      {{Op::gather, Algorithm::tree}, tree::gather},
      {{Op::all_gather, Algorithm::naive}, naive::all_gather},
      {{Op::all_gather, Algorithm::exchange}, exchange::all_gather},
      {{Op::all_gather, Algorithm::tree}, tree::all_gather},
      {{Op::all_gather, Algorithm::ring}, ring::all_gather},
      {{Op::all_gather, Algorithm::halving_doubling}, halving_doubling::all_gather},
      {{Op::reduce_scatter, Algorithm::naive}, naive::reduce_scatter},
      {{Op::reduce_scatter, Algorithm::tree}, tree::reduce_scatter},
      {{Op::reduce_scatter, Algorithm::ring}, ring::reduce_scatter},
      {{Op::reduce_scatter, Algorithm::ordered}, ordered::reduce_scatter},
      {{Op::all_to_all, Algorithm::naive}, naive::all_to_all},
      {{Op::all_to_all, Algorithm::exchange}, exchange::all_to_all},
      {{Op::barrier, Algorithm::naive}, naive::barrier},
      {{Op::barrier, Algorithm::halving_doubling}, halving_doubling::barrier},
  };
  return table;
}

std::string text_of(const Chunks& chunks) {
  return chunks.count == 1 ? fmt::format("chunk {}", chunks.first)
                           : fmt::format("chunks {} to {}", chunks.first, chunks.first + chunks.count - 1);
}

}  // namespace

void Plan::then(const Plan& next) { steps.insert(steps.end(), next.steps.begin(), next.steps.end()); }

Plan make_plan(Op op, Algorithm algorithm, Rank me, int ranks) {
  const auto found = makers().find({op, algorithm});
  if (found != makers().end()) return found->second(me, ranks);
  std::vector<std::string> names{"auto", "direct"};
  for (const Algorithm other : algorithms_of(op)) names.emplace_back(name_of(other));
  throw UsageError(fmt::format("{} has no algorithm '{}'", name_of(op), name_of(algorithm)),
                   fmt::format("one of {}", fmt::join(names, ", ")));
}

std::vector<Algorithm> algorithms_of(Op op) {
  std::vector<Algorithm> found;
  for (const auto& [key, maker] : makers())
    if (key.first == op) found.push_back(key.second);
  return found;
}

Cost cost_of(const Plan& plan, std::size_t count) {
  Cost cost{.steps = static_cast<int>(plan.steps.size()), .messages = 0, .elements = 0};
  for (const Step& step : plan.steps) {
    if (step.to == kNobody) continue;
    ++cost.messages;
    cost.elements += chunk_begin(count, plan.chunks, step.send.first + step.send.count) -
                     chunk_begin(count, plan.chunks, step.send.first);
  }
  return cost;
}

std::string describe(const Plan& plan) {
  std::string text;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    text += fmt::format("step {}  ", i);
    if (step.to != kNobody) text += fmt::format("send {} to {}", text_of(step.send), step.to);
    if (step.to != kNobody && step.from != kNobody) text += ", ";
    if (step.from != kNobody) {
      const char* then = step.arrival == Arrival::reduce ? " and reduce" : "";
      if (step.arrival == Arrival::shelve) then = step.fold ? " and sum all in rank order" : " and keep";
      text += fmt::format("recv {} from {}{}", text_of(step.recv), step.from, then);
    }
    text += '\n';
  }
  return text;
}

}  // namespace lockstep::collectives
