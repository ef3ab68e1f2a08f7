#include "lockstep/cli/training/report.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/training/options.h"

namespace lockstep::cli::training {
namespace {

using nlohmann::json;

constexpr std::size_t kDigestShown = 16;

std::string weights_line(const json& d) {
  const auto digests = d["weights_digest"].get<std::vector<std::string>>();
  if (d["weights_agree"].get<bool>())
    return fmt::format("weights        {}{}\n", digests[0].substr(0, kDigestShown),
                       digests.size() > 1 ? fmt::format(", the same on all {} ranks", digests.size()) : "");
  std::string text = "weights        DIFFER:";
  for (std::size_t rank = 0; rank < digests.size(); ++rank)
    text += fmt::format(" rank {} {}", rank, digests[rank].substr(0, kDigestShown));
  return text + "\n";
}

// JSON has no number for a loss that is none: it is null there.
std::string loss_text(const json& loss) {
  return loss.is_null() || std::isnan(loss.get<double>()) ? "nan" : fmt::format("{:.6f}", loss.get<double>());
}

}  // namespace

std::string table(const json& d) {
  const auto& phase = d["phase_ms"];
  const double step = d["step_ms"]["p50"];
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
  text +=
      fmt::format("  {:<24}{:>10.3f}           p99 {:.3f}\n", "in all (p50)", step, d["step_ms"]["p99"].get<double>());
  text += fmt::format(
      "\ncompute        {:.3f} ms a step\ncommunication  {:.3f} ms a step, {:.3f} ms exposed: overhead {:.1f}%\n",
      compute, communication, exposed, d["overhead_percent"].get<double>());
  const auto& losses = d["losses"];
  if (!losses.empty())
    text += fmt::format("loss           {} at first, {} at last, {} steps\n", loss_text(losses.front()),
                        loss_text(losses.back()), losses.size());
  if (d.contains("accuracy")) text += fmt::format("accuracy       {:.2f}%\n", 100 * d["accuracy"].get<double>());
  text += fmt::format("speed          {:.0f} samples/s\n", d["samples_per_second"].get<double>());
  return text + weights_line(d);
}

int show(const json& document, const Options& options) {
  if (document.contains("error")) {
    fmt::print(stderr, "lockstep train: {}\n", document["error"].get<std::string>());
    return document["exit_code"];
  }
  if (options.json)
    fmt::print("{}\n", document.dump());
  else
    fmt::print("{}", table(document));
  std::fflush(stdout);
  if (!options.out.empty()) {
    std::ofstream file(options.out);
    file << document.dump(1) << "\n";
    file.close();
    if (!file) throw Error(fmt::format("can't write the result to {}", options.out), "another --out");
  }
  if (document["weights_agree"].get<bool>()) return kExitOk;
  fmt::print(stderr, "lockstep train: the ranks ended with different weights\n");
  return kExitVerification;
}

}  // namespace lockstep::cli::training
