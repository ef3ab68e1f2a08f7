#include "lockstep/train/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/quantile.h"
#include "lockstep/data/chain.h"

namespace lockstep::train {

using nlohmann::json;

bool Result::digests_agree() const {
  const auto apart = static_cast<std::size_t>(config.strategy == StrategyKind::pipeline ? config.pipeline.stages : 1);
  for (std::size_t rank = 0; rank < digests.size(); ++rank)
    if (digests[rank] != digests[rank % apart]) return false;
  return true;
}

double Result::overhead_percent() const {
  const double step = phases.step();
  return step > 0 ? 100 * phases.exposed_communication / step : 0;
}

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
            {"balance", name_of(c.balance.value_or(pipeline::Balance::count))},
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

json document_of_backward(const BackwardRecord& record, const Phases& phases) {
  json travels = json::array();
  for (const BackwardRecord::Travel& one : record.travels) {
    travels.push_back({{"bytes", one.bytes},
                       {"ready_us", 1e6 * one.ready},
                       {"began_us", 1e6 * one.began},
                       {"ended_us", 1e6 * one.ended}});
    if (!one.name.empty()) travels.back()["parameter"] = one.name;
  }
  return {{"end_us", 1e6 * record.end},
          {"overlap", name_of(record.overlaps ? Overlap::on : Overlap::off)},
          {"overlapped_ms", 1e3 * phases.overlapped},
          {"travels", std::move(travels)}};
}

}  // namespace

json document(const Result& r) {
  const TrainingConfig& c = r.config;
  json d = {
      {"strategy", name_of(c.strategy)},
      {"engine", "native"},
      {"transport", r.transport},
      {"algorithm", name_of(c.algorithm)},
      {"ranks", c.ranks},
      {"model", name_of(c.model.kind)},
      {"model_name", c.describe_model()},
      {"parameters", r.parameters},
      {"gradient_bytes", r.gradient_bytes},
      {"data", name_of(c.data)},
      {"batch", c.batch},
      {"accumulate", c.accumulate},
      {"optimizer", name_of(c.optimizer)},
      {"lr", c.lr},
      {"seed", c.seed},
      {"flat", c.flat},
      {"fused_update", c.fused_update},
      {"steps", r.steps},
      {"losses", r.losses},
      {"losses_every", r.losses_every},
      {"step_ms", {{"mean", 1e3 * r.phases.step()}, {"p50", 1e3 * r.step_p50}, {"p99", 1e3 * r.step_p99}}},
      {"phase_ms",
       {{"forward", 1e3 * r.phases.forward},
        {"backward", 1e3 * r.phases.backward},
        {"communication", 1e3 * r.phases.communication},
        {"exposed_communication", 1e3 * r.phases.exposed_communication},
        {"optimizer", 1e3 * r.phases.optimizer},
        {"other", 1e3 * r.phases.other}}},
      {"overhead_percent", r.overhead_percent()},
      {"samples_per_second", r.step_p50 > 0 ? static_cast<double>(c.batch) / r.step_p50 : 0.0},
      {"seconds", r.seconds},
      {"weights_digest", r.digests},
      {"weights_agree", r.digests_agree()},
      {"peak_memory_bytes", r.peak_bytes},
  };
  for (std::size_t rank = 0; rank < r.shares.size(); ++rank) {
    const Shares& shares = r.shares[rank];
    json one = {
        {"rank", rank}, {"compute", shares.compute}, {"communication", shares.communication}, {"other", shares.other}};
    if (r.pipeline) one["bubble"] = shares.bubble;
    d["utilisation"].push_back(std::move(one));
  }
  if (r.pipeline) {
    d["phase_ms"]["bubble"] = 1e3 * r.phases.bubble;
    d["pipeline"] = document_of_pipeline(r);
  }
  if (!c.pipeline.emulate)
    if (const auto trouble = trouble_with(r.losses, r.losses_every)) d["loss_trouble"] = *trouble;
  if (c.data == data::DataKind::tokens && !c.pipeline.emulate)
    d["best_loss"] = data::chain_entropy(c.model.transformer.vocabulary);
  if (r.backward) d["backward"] = document_of_backward(*r.backward, r.phases);
  if (c.layer_wait > 0) d["layer_wait_ms"] = 1e3 * c.layer_wait;
  if (c.bucket_mb) d["bucket_mb"] = *c.bucket_mb;
  if (!r.pss_bytes.empty()) d["pss_bytes"] = r.pss_bytes;
  if (!r.accuracies.empty()) {
    d["accuracy"] = r.accuracies.back();
    d["accuracies"] = r.accuracies;
  }
  return d;
}

std::optional<std::string> trouble_with(const std::vector<double>& losses, std::int64_t losses_every) {
  constexpr std::size_t kParts = 10, kFewest = 2 * kParts;  // fewer losses have no clear course
  constexpr double kJump = 10, kAboveFirst = 1.1, kAboveBest = 2, kStillMuch = 0.1;
  const auto first_bad = std::find_if(losses.begin(), losses.end(), [](double loss) { return !std::isfinite(loss); });
  if (first_bad != losses.end())
    return fmt::format("the loss is {} at step {}", *first_bad, (first_bad - losses.begin()) * losses_every + 1);
  const auto worst = losses.empty() ? losses.end() : std::max_element(losses.begin(), losses.end());
  if (worst != losses.end() && *worst > kJump * losses.front())
    return fmt::format("the loss jumped to {:.6f} at step {}, and began at {:.6f}", *worst,
                       (worst - losses.begin()) * losses_every + 1, losses.front());
  if (losses.size() < kFewest) return {};
  std::vector<double> parts;  // the median of each tenth
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto at = [&](std::size_t part) {
      return losses.begin() + static_cast<std::ptrdiff_t>(losses.size() * part / kParts);
    };
    parts.push_back(median({at(i), at(i + 1)}));
  }
  const double first = losses.front(), last = parts.back(), best = *std::min_element(parts.begin(), parts.end());
  if (last > kAboveFirst * first)
    return fmt::format("the loss has diverged: it began at {:.6f}, and the median of the last tenth is {:.6f}", first,
                       last);
  if (last > kAboveBest * best && last > kStillMuch * first)
    return fmt::format("the loss rose again: the median of its best tenth is {:.6f}, and that of the last is {:.6f}",
                       best, last);
  return {};
}

}  // namespace lockstep::train
