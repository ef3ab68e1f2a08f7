#include "lockstep/cli/comparison/runs.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/quantile.h"
#include "lockstep/cli/start.h"
#include "lockstep/error.h"
#include "lockstep/train/result.h"

namespace lockstep::cli::comparison {

using nlohmann::json;

json training_run(int ranks, const std::vector<std::string>& command) {
  const Outcome outcome = start_ranks(ranks, command);
  if (outcome.exit_code != kExitOk) throw Error("a run failed", "the lines above", outcome.exit_code);
  json document = json::parse(outcome.result);
  if (document.contains("error")) throw UsageError(document["error"].get<std::string>());
  return document;
}

json medians(const std::vector<json>& rounds) {
  json row = rounds.front();
  for (auto& [key, value] : row.items()) {
    if (value.is_object()) {
      std::vector<json> inner;
      for (const json& one : rounds) inner.push_back(one[key]);
      value = medians(inner);
    } else if (value.is_number_float()) {
      std::vector<double> values;
      for (const json& one : rounds) values.push_back(one[key].get<double>());
      value = median(values);
    }
  }
  return row;
}

void Countdown::next(const std::string& what) {
  constexpr double kWorthSaying = 5;  // seconds
  std::string text = fmt::format("measuring: {} of {}, {}", begun_ + 1, runs_, what);
  const double left = begun_ == 0 ? 0 : seconds_since(began_) / begun_ * (runs_ - begun_);
  if (left >= kWorthSaying) text += fmt::format("; about {:.0f} s left", left);
  fmt::print(stderr, "{}\n", text);
  ++begun_;
}

}  // namespace lockstep::cli::comparison
