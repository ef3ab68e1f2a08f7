#include "lockstep/cli/comparison/ranks_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/kinds.h"

namespace lockstep::cli::comparison {
namespace {

using nlohmann::json;

constexpr double kAgree = 1e-4;

double step_of(const json& row) { return row["step_ms"]["p50"]; }

std::string text_of(const json& loss) {
  return loss.is_null() ? "not a number" : fmt::format("{:.6f}", loss.get<double>());
}

std::string rows_of(const json& d) {
  std::string text = fmt::format("{:<30}{:>9}{:>12}{:>11}{:>17}\n", "", "threads", "step ms", "speed-up", "last loss");
  for (const json& row : d["rows"]) {
    const int ranks = row["ranks"], threads = row["threads"];
    text += fmt::format("{:<30}{:>9}{:>12.2f}{:>11.2f}{:>17}\n", row["name"].get<std::string>(),
                        ranks == 1 ? std::to_string(threads) : fmt::format("{} x {}", ranks, threads), step_of(row),
                        row["speedup"].get<double>(), text_of(row["losses"].back()));
  }
  return text;
}

// The largest value of all sides; NaN if one of them is not a number.
double largest(const json& d, const char* key) {
  double most = 0;
  for (const json& row : d["rows"]) {
    if (row[key].is_null() || std::isnan(row[key].get<double>())) return std::nan("");
    most = std::max(most, row[key].get<double>());
  }
  return most;
}

int digits(double difference) { return static_cast<int>(std::floor(-std::log10(std::max(difference, 1e-9)))); }

std::string verdict_on_losses(const json& d) {
  const json& ranks = d["rows"].back();
  const int count = ranks["ranks"], steps = d["steps"];
  const double first = largest(d, "first_losses_difference"), all = largest(d, "loss_difference");
  if (std::isnan(first)) return "The losses are not numbers; try a smaller --lr.\n";
  if (!sides_agree(d))
    return fmt::format(
        "The rows do NOT agree: the losses of the first steps differ by up to {:.1e}, and\n"
        "the weights of the {} ranks are {}.\n",
        first, count, ranks["weights_agree"].get<bool>() ? "the same" : "different");
  const std::string losses = all == 0 ? fmt::format("All {} losses are the same in all rows, bit for bit.", steps)
                             : digits(all) >= 3
                                 ? fmt::format("All {} losses agree to {} digits in all rows.", steps, digits(all))
                                 : fmt::format(
                                       "The losses agree to {} digits at first. Later they drift apart, because this\n"
                                       "network multiplies rounding errors with every step.",
                                       digits(first));
  const json& alone = d["rows"].front();
  return fmt::format("The loss went from {} to {}.\n{}\nThe {} ranks ended with the same weights, bit for bit.\n",
                     text_of(alone["losses"].front()), text_of(alone["losses"].back()), losses, count);
}

std::string phases_of(const json& d) {
  const json &alone = d["rows"].front(), &ranks = d["rows"].back();
  std::string text = fmt::format("{:<34}{:>12}{:>12}\n", "Where the time of a step goes, ms", "one thread",
                                 fmt::format("{} ranks", ranks["ranks"].get<int>()));
  double one = 0, many = 0;
  const auto add = [&](const char* name, double a, double b) {
    text += fmt::format("  {:<32}{:>12.2f}{:>12.2f}\n", name, a, b);
    one += a;
    many += b;
  };
  for (const auto& [key, name] : {std::pair{"forward", "forward"},
                                  {"backward", "backward"},
                                  {"optimizer", "optimizer"},
                                  {"exposed_communication", "gradients: waiting, exchange"},
                                  {"other", "other: clearing gradients"}})
    add(name, alone["phase_ms"][key], ranks["phase_ms"][key]);
  add("in all", one, many);
  return text + "Means over the half of the steps whose times are nearest to the median step.\n";
}

// Sides within 2% of each other count as equally fast, because times vary by that much even on a quiet machine.
std::string compared(double faster) {
  if (faster > 0.98 && faster < 1.02) return "as fast as";
  return faster > 1 ? fmt::format("{:.2f} times as fast as", faster)
                    : fmt::format("{:.2f} times slower than", 1 / faster);
}

std::string conclusion(const json& d) {
  const json& ranks = d["rows"].back();
  const int count = ranks["ranks"], cores = d["cores"];
  const double speedup = ranks["speedup"];
  if (cores == 1)
    return fmt::format(
        "This process may use 1 core only, so {} ranks share it and nothing can be gained: they\n"
        "show what data parallelism costs. With more cores, run this again.\n",
        count);
  const int most = std::min(count, cores);
  const double threads = step_of(d["rows"][1]) / step_of(ranks);
  return fmt::format(
      "{} ranks are {} one process with one thread\n"
      "({:.0f}% of what {} cores could give), and {} one process\n"
      "with {} threads.\n",
      count, compared(speedup), 100 * speedup / most, most, compared(threads), cores);
}

std::string what_next(const json& d) {
  return fmt::format(
      "Try next:\n"
      "  {0} compare ranks --depth 16 --dim 128 --batch 32\n"
      "      the same with short steps, where there is little to gain\n"
      "  {0} compare hooks\n"
      "      how gradients travel while backward still runs\n"
      "  {0} train --model cnn --data fashion-mnist --epochs 1\n"
      "      real images on 2 ranks; ./dev data fashion-mnist fetches them first\n",
      d["program"].get<std::string>());
}

}  // namespace

std::string describe_ranks(const json& d) {
  const int cores = d["cores"];
  const std::string model =
      model::kModels.parse(d["model"].get<std::string>()) == model::ModelKind::mlp
          ? fmt::format("An MLP of {} layers, {} wide:", d["depth"].get<int>(), d["dim"].get<int>())
          : fmt::format("{}:\n ", d["model_name"].get<std::string>());
  std::string text = fmt::format(
      "{} {} parameters, {} steps, {}.\n"
      "Each step trains on {} samples, which the ranks share. A rank is a process\n"
      "with the whole model; ddp averages the gradients of all ranks in every step.\n\n",
      model, d["rows"][0]["parameters"].get<std::int64_t>(), d["steps"].get<int>(),
      cores == 1 ? "1 core" : fmt::format("{} cores", cores), d["batch"].get<int>());
  return text + rows_of(d) + "\n" + conclusion(d) + "\n" + verdict_on_losses(d) + "\n" + phases_of(d) + "\n" +
         what_next(d);
}

bool sides_agree(const json& d) {
  if (!(largest(d, "first_losses_difference") < kAgree)) return false;
  return std::all_of(d["rows"].begin(), d["rows"].end(),
                     [](const json& row) { return row["weights_agree"].get<bool>(); });
}

}  // namespace lockstep::cli::comparison
