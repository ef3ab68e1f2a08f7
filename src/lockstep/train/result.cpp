#include "lockstep/train/result.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep::train {

using nlohmann::json;

bool Result::digests_agree() const {
  const auto apart = static_cast<std::size_t>(config.strategy == "pipeline" ? config.pipeline.stages : 1);
  for (std::size_t rank = 0; rank < digests.size(); ++rank)
    if (digests[rank] != digests[rank % apart]) return false;
  return true;
}

double Result::overhead_percent() const { return step_p50 > 0 ? 100 * phases.exposed_communication / step_p50 : 0; }

namespace {

json document_of_pipeline(const Result& r) {
  const PipelineResult& p = *r.pipeline;
  const PipelineConfig& c = r.config.pipeline;
  json d = {{"schedule", p.schedule},
            {"stages", c.stages},
            {"all_stages", p.all_stages},
            {"virtual_stages", p.all_stages / c.stages},
            {"microbatches", c.microbatches},
            {"replicas", r.config.replicas()},
            {"balance", c.balance},
            {"recompute", c.recompute},
            {"emulated", c.emulate.has_value()},
            {"messages", p.messages},
            {"bubble_predicted", p.bubble_predicted},
            {"bubble_measured", p.bubble_measured},
            {"predicted_ms", 1e3 * p.seconds_predicted},
            {"measured_ms", 1e3 * p.seconds_measured},
            {"peak_activations", p.peak_activations}};
  for (const pipeline::Times& one : p.times)
    d["times_ms"].push_back({{"F", 1e3 * one.forward}, {"I", 1e3 * one.input}, {"W", 1e3 * one.weight}});
  return d;
}

}  // namespace

json document(const Result& r) {
  const TrainingConfig& c = r.config;
  json d = {
      {"strategy", c.strategy},
      {"engine", "native"},
      {"transport", r.transport},
      {"algorithm", c.algorithm},
      {"ranks", c.ranks},
      {"model", c.model.name},
      {"model_name", c.describe_model()},
      {"parameters", r.parameters},
      {"gradient_bytes", r.gradient_bytes},
      {"data", c.data},
      {"batch", c.batch},
      {"accumulate", c.accumulate},
      {"optimizer", c.optimizer},
      {"lr", c.lr},
      {"seed", c.seed},
      {"flat", c.flat},
      {"steps", r.losses.size()},
      {"losses", r.losses},
      {"step_ms", {{"p50", 1e3 * r.step_p50}, {"p99", 1e3 * r.step_p99}}},
      {"phase_ms",
       {{"forward", 1e3 * r.phases.forward},
        {"backward", 1e3 * r.phases.backward},
        {"communication", 1e3 * r.phases.communication},
        {"exposed_communication", 1e3 * r.phases.exposed_communication},
        {"optimizer", 1e3 * r.phases.optimizer}}},
      {"overhead_percent", r.overhead_percent()},
      {"samples_per_second", r.step_p50 > 0 ? static_cast<double>(c.batch) / r.step_p50 : 0.0},
      {"seconds", r.seconds},
      {"weights_digest", r.digests},
      {"weights_agree", r.digests_agree()},
      {"peak_memory_bytes", r.peak_bytes},
  };
  for (std::size_t rank = 0; rank < r.shares.size(); ++rank)
    d["utilisation"].push_back({{"rank", rank},
                                {"compute", r.shares[rank].compute},
                                {"communication", r.shares[rank].communication},
                                {"bubble", r.shares[rank].bubble}});
  if (r.pipeline) {
    d["phase_ms"]["bubble"] = 1e3 * r.phases.bubble;
    d["pipeline"] = document_of_pipeline(r);
  }
  if (c.bucket_mb) d["bucket_mb"] = *c.bucket_mb;
  if (!r.pss_bytes.empty()) d["pss_bytes"] = r.pss_bytes;
  if (!r.accuracies.empty()) {
    d["accuracy"] = r.accuracies.back();
    d["accuracies"] = r.accuracies;
  }
  return d;
}

double quantile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  const auto place = static_cast<std::ptrdiff_t>(std::lround(p * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

}  // namespace lockstep::train
