#include "lockstep/parallel/pipeline/run/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "lockstep/error.h"
#include "lockstep/model/limits.h"
#include "lockstep/parallel/pipeline/run/generator.h"
#include "lockstep/parallel/pipeline/schedule/csv.h"

namespace lockstep::pipeline {
namespace {

// Finds a trained parameter that two stages share. It remembers parameters without keeping them alive, because modules
// of other ranks are dropped.
class TiedWeights {
 public:
  void add(const torch::nn::Module& module, const std::string& name, int stage) {
    for (const auto& item : module.named_parameters()) {
      if (!item.value().requires_grad()) continue;
      Seen mine{c10::weak_intrusive_ptr<c10::TensorImpl>(item.value().getIntrusivePtr()), name + "." + item.key(),
                stage};
      Seen& seen = seen_.try_emplace(item.value().unsafeGetTensorImpl(), mine).first->second;
      if (seen.tensor.expired()) seen = mine;  // another tensor had this address, and was dropped
      if (seen.stage != stage) refuse(seen, mine);
    }
  }

 private:
  struct Seen {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    std::string name;
    int stage;
  };

  [[noreturn]] static void refuse(const Seen& a, const Seen& b) {
    throw UsageError(fmt::format("{} (stage {}) and {} (stage {}) are one parameter, and two stages can't share it",
                                 a.name, a.stage, b.name, b.stage),
                     "fewer stages or another balance, so that both are in one stage, or weights that are not tied");
  }

  std::unordered_map<const c10::TensorImpl*, Seen> seen_;
};

std::vector<Range> ranges_of(std::vector<ModuleCost> costs, int stages, const PipelineOptions& options) {
  const auto& seconds = options.module_seconds;
  if (options.balance == Balance::time && seconds.size() != costs.size())
    throw UsageError(
        fmt::format("a balance by time needs the seconds of all {} modules, and has {}", costs.size(), seconds.size()),
        "PipelineOptions::sample or module_seconds");
  for (std::size_t i = 0; i < std::min(costs.size(), seconds.size()); ++i) costs[i].seconds = seconds[i];
  return partition(costs, stages, options.balance);
}

// Everything but the modules.
Parts plan(const std::vector<ModuleCost>& costs, Rank rank, int ranks, const PipelineOptions& options) {
  Parts parts;
  const int in_pipeline = ranks_in_pipeline(options, ranks);
  parts.schedule = schedule_for(options, in_pipeline);
  parts.ranges = ranges_of(costs, parts.schedule.stages, options);
  parts.position = rank % in_pipeline;
  for (const ModuleCost& cost : costs) parts.parameters.push_back(cost.parameters);
  for (int stage = 0; stage < parts.schedule.stages; ++stage)
    if (parts.schedule.rank_of_stage[index_of(stage)] == parts.position) parts.mine.push_back(stage);
  return parts;
}

// The stage of each module.
std::vector<int> stage_of_module(const Parts& parts) {
  std::vector<int> stages(parts.parameters.size());
  for (std::size_t s = 0; s < parts.ranges.size(); ++s)
    for (std::int64_t i = parts.ranges[s].begin; i < parts.ranges[s].end; ++i)
      stages[index_of(i)] = static_cast<int>(s);
  return stages;
}

std::int64_t parameters_in(const Parts& parts, const Range& range) {
  return std::accumulate(parts.parameters.begin() + range.begin, parts.parameters.begin() + range.end, std::int64_t{0});
}

}  // namespace

int ranks_in_pipeline(const PipelineOptions& options, int ranks) {
  int wanted = options.ranks == 0 ? ranks : options.ranks;
  if (options.ranks == 0 && options.schedule.ends_with(".csv")) wanted = read_csv(options.schedule).ranks;
  if (wanted < 1 || ranks % wanted != 0)
    throw UsageError(fmt::format("{} ranks are no whole number of pipelines of {} ranks", ranks, wanted),
                     "PipelineOptions::ranks that divides the number of ranks");
  return wanted;
}

Schedule schedule_for(const PipelineOptions& options, int ranks_in_pipeline) {
  return options.schedule.ends_with(".csv")
             ? read_csv(options.schedule)
             : make_schedule(options.schedule, ranks_in_pipeline, options.microbatches, options.virtual_stages);
}

Parts cut_network(const torch::nn::SequentialImpl& network, Rank rank, int ranks, const PipelineOptions& options) {
  Parts parts = plan(costs_of(network), rank, ranks, options);
  const auto children = network.named_children();
  const std::vector<int> stages = stage_of_module(parts);
  TiedWeights tied;
  for (std::size_t i = 0; i < children.size(); ++i) {
    parts.names.push_back(children[i].key());
    tied.add(*children[i].value(), children[i].key(), stages[i]);
  }
  for (const int stage : parts.mine) parts.stages.push_back(cut(network, parts.ranges[index_of(stage)]));
  return parts;
}

Parts make_parts(std::span<const model::Layer> layers, Rank rank, int ranks, const PipelineOptions& options) {
  Parts parts = plan(count_parameters(layers), rank, ranks, options);
  double kept = 0;
  for (const int stage : parts.mine) kept += static_cast<double>(parameters_in(parts, parts.ranges[index_of(stage)]));
  model::check_fits(fmt::format("rank {}'s part of the model", rank), kept);

  parts.stages.resize(parts.mine.size());
  const std::vector<int> stages = stage_of_module(parts);
  TiedWeights tied;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    parts.names.push_back(std::to_string(i));
    const torch::nn::AnyModule module = layers[i].make();
    tied.add(*module.ptr(), parts.names.back(), stages[i]);
    const auto mine = std::find(parts.mine.begin(), parts.mine.end(), stages[i]);
    if (mine != parts.mine.end())
      parts.stages[static_cast<std::size_t>(mine - parts.mine.begin())]->push_back(parts.names.back(), module);
  }
  return parts;
}

std::vector<ModuleCost> count_parameters(std::span<const model::Layer> layers) {
  std::vector<ModuleCost> costs;
  std::optional<KeptGenerator> kept;
  for (const model::Layer& layer : layers) {
    ModuleCost cost{.parameters = layer.parameters};
    if (layer.parameters == model::Layer::kUnknown) {
      if (!kept) kept.emplace();
      cost.parameters = 0;
      for (const torch::Tensor& parameter : layer.make().ptr()->parameters()) cost.parameters += parameter.numel();
    }
    costs.push_back(cost);
  }
  return costs;
}

torch::nn::Sequential Parts::joined() const {
  torch::nn::Sequential all;
  for (const torch::nn::Sequential& stage : stages) {
    const auto children = stage->named_children();
    for (std::size_t i = 0; i < children.size(); ++i)
      all->push_back(children[i].key(), *(stage->begin() + static_cast<std::ptrdiff_t>(i)));
  }
  return all;
}

std::function<bool(const std::string&)> Parts::elsewhere() const {
  std::vector<std::string> modules;
  const std::vector<int> stage_of = stage_of_module(*this);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (std::find(mine.begin(), mine.end(), stage_of[i]) == mine.end()) modules.push_back(names[i]);
  std::sort(modules.begin(), modules.end());
  return [modules](const std::string& tensor) {
    const std::size_t dot = tensor.find('.');  // names of modules have none
    return dot != std::string::npos && std::binary_search(modules.begin(), modules.end(), tensor.substr(0, dot));
  };
}

std::string Parts::table() const {
  std::string text = "stage  rank  modules               parameters\n";
  for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
    const Range& range = ranges[stage];
    const std::string& first = names[static_cast<std::size_t>(range.begin)];
    const std::string& last = names[static_cast<std::size_t>(range.end - 1)];
    text += fmt::format("{:5}  {:4}  {:20}  {:10}\n", stage, schedule.rank_of_stage[stage],
                        first == last ? first : first + " to " + last, parameters_in(*this, range));
  }
  return text;
}

}  // namespace lockstep::pipeline
