#include "lockstep/parallel/pipeline/run/distribute.h"

#include <mutex>

#include "lockstep/error.h"
#include "lockstep/parallel/data/parameters.h"
#include "lockstep/parallel/pipeline/run/generator.h"
#include "lockstep/tensor.h"
#include "lockstep/weights.h"

namespace lockstep::pipeline {
namespace {

using torch::Tensor;

// Only rank 0 measures, because other ranks would measure other times and cut elsewhere.
template <typename Measure>
PipelineOptions with_seconds(PipelineOptions options, std::size_t modules, Communicator& comm, const Measure& measure) {
  if (options.balance != Balance::time || !options.module_seconds.empty()) return options;
  options.module_seconds.resize(modules);
  if (comm.rank() == 0) {
    if (!options.sample.defined())
      throw UsageError("a balance by time needs a microbatch to measure with", "PipelineOptions::sample on rank 0");
    const KeptGenerator kept;
    options.module_seconds = measure(options.sample);
  }
  comm.broadcast(options.module_seconds, 0);
  return options;
}

// Measuring runs the modules, which changes the statistics of layers such as BatchNorm. They are put back.
std::vector<double> measured(torch::nn::SequentialImpl& model, const std::vector<parallel::Named>& buffers,
                             const Tensor& sample) {
  std::vector<Tensor> before;
  for (const auto& [name, buffer] : buffers) before.push_back(buffer.clone());
  std::vector<double> seconds;
  for (const ModuleCost& cost : measure(model, sample)) seconds.push_back(cost.seconds);
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < before.size(); ++i) buffers[i].tensor.copy_(before[i]);
  return seconds;
}

}  // namespace

Parts distribute(torch::nn::SequentialImpl& model, Communicator& comm, const PipelineOptions& options) {
  const parallel::ModelTensors tensors = parallel::tensors_of(model);
  parallel::compare_models(tensors, comm);
  const auto measure = [&](const Tensor& sample) { return measured(model, tensors.buffers, sample); };
  Parts parts = cut_network(model, comm.rank(), comm.size(), with_seconds(options, model.size(), comm, measure));

  const torch::NoGradGuard no_grad;
  const auto children = model.named_children();
  for (std::size_t stage = 0; stage < parts.ranges.size(); ++stage) {
    const Rank owner = parts.schedule.rank_of_stage[stage];
    if (owner == 0 || (comm.rank() != 0 && comm.rank() != owner)) continue;
    for (std::int64_t i = parts.ranges[stage].begin; i < parts.ranges[stage].end; ++i)
      for (const auto& [name, tensor] : weights::tensors_of(*children[index_of(i)].value()))
        comm.rank() == 0 ? comm.send(owner, tensor) : comm.recv(0, tensor);
  }
  return parts;
}

Parts distribute(const std::vector<model::Layer>& layers, Communicator& comm, const PipelineOptions& options) {
  const auto measure = [&](const Tensor& sample) { return pipeline::measure(layers, sample); };
  const PipelineOptions checked = with_seconds(options, layers.size(), comm, measure);
  const Tensor first = generator_state();
  comm.broadcast(first, 0);

  static std::mutex one_at_a_time;  // ranks that are threads share the generator
  const std::lock_guard lock(one_at_a_time);
  const Tensor before = generator_state();
  set_generator_state(first);
  Parts parts = make_parts(layers, comm.rank(), comm.size(), checked);
  if (!torch::equal(before, first)) set_generator_state(before);
  return parts;
}

}  // namespace lockstep::pipeline
