#include "lockstep/cli/training/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "lockstep/cli/files.h"
#include "lockstep/cli/training/options.h"
#include "lockstep/cli/with_flags.h"
#include "lockstep/error.h"

namespace lockstep::cli::training {
namespace {

using nlohmann::json;

constexpr std::size_t kDigestShown = 16;

std::string weights_line(const json& d) {
  const auto digests = d["weights_digest"].get<std::vector<std::string>>();
  const int pipelines = d.contains("pipeline") ? d["pipeline"]["replicas"].get<int>() : 0;
  if (pipelines > 0 && d["pipeline"]["emulated"].get<bool>()) return "";
  if (pipelines > 0 && d["weights_agree"].get<bool>()) {
    if (pipelines == 1) return fmt::format("weights        in {} parts, one per rank\n", digests.size());
    return fmt::format("weights        in {} parts, each the same in all {} pipelines\n",
                       digests.size() / static_cast<std::size_t>(pipelines), pipelines);
  }
  if (d["weights_agree"].get<bool>())
    return fmt::format("weights        {}{}\n", digests[0].substr(0, kDigestShown),
                       digests.size() > 1 ? fmt::format(", the same on all {} ranks", digests.size()) : "");
  std::string text = "weights        DIFFER:";
  for (std::size_t rank = 0; rank < digests.size(); ++rank)
    text += fmt::format(" rank {} {}", rank, digests[rank].substr(0, kDigestShown));
  return text + "\n";
}

// JSON has no NaN: a loss that is not a number is null there.
std::string loss_text(const json& loss) {
  return loss.is_null() || std::isnan(loss.get<double>()) ? "nan" : fmt::format("{:.6f}", loss.get<double>());
}

// One line per rank, for at most kLines ranks.
std::string utilisation_lines(const json& d) {
  constexpr std::size_t kLines = 16;
  const json& all = d["utilisation"];
  std::string text = fmt::format("\n{:<20}", "utilisation");
  std::vector<const char*> columns{"compute", "communication"};
  if (d.contains("pipeline")) columns.push_back("bubble");
  columns.push_back("other");
  for (const char* column : columns) text += fmt::format("{:>14}", column);
  text += "\n";
  for (std::size_t rank = 0; rank < std::min(all.size(), kLines); ++rank) {
    text += fmt::format("  {:<18}", fmt::format("rank {}", rank));
    for (const char* column : columns) text += fmt::format("{:>13.1f}%", 100 * all[rank][column].get<double>());
    text += "\n";
  }
  if (all.size() > kLines) text += fmt::format("  and {} more ranks: --json\n", all.size() - kLines);
  return text;
}

// What --report-memory has measured.
std::string memory_lines(const json& d) {
  constexpr std::size_t kLines = 16;
  const auto megabytes = [](const json& bytes) { return bytes.get<double>() / 1e6; };
  const json &shares = d["pss_bytes"], &peaks = d["peak_memory_bytes"];
  std::string text = fmt::format("\n{:<20}{:>14}{:>14}\n", "memory, MB", "its share", "peak");
  double sum = 0;
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    sum += megabytes(shares[rank]);
    if (rank < kLines)
      text += fmt::format("  {:<18}{:>14.1f}{:>14.1f}\n", fmt::format("rank {}", rank), megabytes(shares[rank]),
                          megabytes(peaks[rank]));
  }
  if (shares.size() > kLines) text += fmt::format("  and {} more ranks: --json\n", shares.size() - kLines);
  return text + fmt::format("  {:<18}{:>14.1f}\n", "in all", sum);
}

std::string pipeline_lines(const json& p) {
  const auto peaks = p["peak_activations"].get<std::vector<int>>();
  std::string text = p["emulated"].get<bool>()
                         ? "\nEMULATED COMPUTE: stages waited instead of computing. No loss, no weights trained.\n"
                         : "\n";
  text += fmt::format("{:<26}{:>10}{:>16}\n", p["schedule"].get<std::string>(), "predicted", "measured");
  text += fmt::format("  {:<24}{:>9.1f}%{:>15.1f}%\n", "idle: bubble, messages",
                      100 * p["bubble_predicted"].get<double>(), 100 * p["bubble_measured"].get<double>());
  text += fmt::format("  {:<24}{:>10.3f}{:>16.3f}\n", "forward and backward ms", p["predicted_ms"].get<double>(),
                      p["measured_ms"].get<double>());
  return text + fmt::format("  activations held          {} at most, {} messages per step\n",
                            *std::max_element(peaks.begin(), peaks.end()), p["messages"].get<int>());
}

}  // namespace

std::string table(const json& d) {
  const auto& phase = d["phase_ms"];
  const double step = d["step_ms"]["mean"];
  const auto line = [step](const char* name, double ms) {
    return fmt::format("  {:<24}{:>10.3f}{:>9.1f}%\n", name, ms, step > 0 ? 100 * ms / step : 0);
  };
  const double communication = phase["communication"];
  const double exposed = phase["exposed_communication"];
  const double compute =
      phase["forward"].get<double>() + phase["backward"].get<double>() + phase["optimizer"].get<double>();
  std::string text = fmt::format("{:<26}{:>10}{:>10}\n", "a step", "ms", "share");
  text +=
      line("forward", phase["forward"]) + line("backward", phase["backward"]) + line("optimizer", phase["optimizer"]);
  text += line("exposed communication", exposed);
  if (phase.contains("bubble")) text += line("bubble", phase["bubble"]);
  text += line("other", phase["other"]) + line("in all", step);
  text += fmt::format("\nstep           p50 {:.3f} ms, p99 {:.3f} ms\n", d["step_ms"]["p50"].get<double>(),
                      d["step_ms"]["p99"].get<double>());
  text += fmt::format(
      "compute        {:.3f} ms per step\ncommunication  {:.3f} ms per step, {:.3f} ms exposed: overhead {:.1f}%\n",
      compute, communication, exposed, d["overhead_percent"].get<double>());
  if (d.contains("backward"))
    text += fmt::format("overlap        {}\n", d["backward"]["overlap"] == "on"
                                                   ? "on: gradients travel on a thread of their own"
                                                   : "off: gradients travel after backward");
  if (d.contains("utilisation")) text += utilisation_lines(d);
  if (d.contains("pss_bytes")) text += memory_lines(d);
  if (d.contains("pipeline")) text += pipeline_lines(d["pipeline"]);
  text += "\n";
  const auto& losses = d["losses"];
  const bool emulated = d.contains("pipeline") && d["pipeline"]["emulated"].get<bool>();
  if (!losses.empty() && !emulated)
    text += fmt::format("loss           {} at first, {} at last, {} steps\n", loss_text(losses.front()),
                        loss_text(losses.back()), d["steps"].get<std::int64_t>());
  if (d.contains("best_loss"))
    text += fmt::format("best loss      {:.6f} without learning the batch by heart\n", d["best_loss"].get<double>());
  if (d.contains("accuracy")) text += fmt::format("accuracy       {:.2f}%\n", 100 * d["accuracy"].get<double>());
  text += fmt::format("speed          {:.0f} samples/s\n", d["samples_per_second"].get<double>());
  return text + weights_line(d);
}

void say_files(const train::TrainingConfig& config) {
  for (const std::string& path : {config.save, config.trace})
    if (!path.empty()) say_written(path);
}

int show(const json& document, const Options& options) {
  if (document.contains("error")) {
    fmt::print(stderr, "lockstep train: {}\n", with_flags(document["error"].get<std::string>()));
    return document["exit_code"];
  }
  if (options.json)
    fmt::print("{}\n", document.dump());
  else
    fmt::print("{}", table(document));
  std::fflush(stdout);
  if (document.contains("loss_trouble"))
    fmt::print(stderr, "lockstep train: {}; try: a smaller --lr than {:g}\n",
               document["loss_trouble"].get<std::string>(), document["lr"].get<double>());
  if (!options.out.empty()) {
    write_and_say(options.out, document.dump(1) + "\n");
  }
  if (document["weights_agree"].get<bool>()) return kExitOk;
  fmt::print(stderr, "lockstep train: the ranks ended with different weights\n");
  return kExitVerification;
}

}  // namespace lockstep::cli::training
