#include "lockstep/cli/scheduling/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::cli::scheduling {
namespace {

using nlohmann::json;
using namespace pipeline;

std::string counted(int count, const char* what, const char* plural = "s") {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : plural);
}

bool has(const Schedule& schedule, Kind kind) {
  for (const auto& list : schedule.actions)
    for (const Action& action : list)
      if (action.kind == kind) return true;
  return false;
}

// "F = 1, B = 2": the times of the kinds of actions that the schedule has.
std::string times_text(const Schedule& schedule, const Times& times) {
  std::string text = fmt::format("F = {:g}", times.forward);
  if (has(schedule, Kind::B)) text += fmt::format(", B = {:g}", times.of(Kind::B));
  if (has(schedule, Kind::I)) text += fmt::format(", I = {:g}, W = {:g}", times.input, times.weight);
  return text;
}

json json_of(const std::vector<Wait>& cycle) {
  json list = json::array();
  for (const Wait& wait : cycle)
    list.push_back({{"rank", wait.rank},
                    {"step", wait.step},
                    {"action", to_string(wait.action)},
                    {"waits_for_rank", wait.peer},
                    {"waits_for", to_string(other_end(wait.action))},
                    {"waits_for_step", wait.its_step}});
  return list;
}

json json_of(const Schedule& schedule) {
  json ranks = json::array();
  for (const auto& list : schedule.actions) {
    json& rank = ranks.emplace_back(json::array());
    for (const Action& action : list) rank.push_back(to_string(action));
  }
  return ranks;
}

// "4 3 2 1", or "8 on every rank".
std::string peaks_text(const std::vector<int>& peaks) {
  if (peaks.size() > 1 && std::all_of(peaks.begin(), peaks.end(), [&](int peak) { return peak == peaks[0]; }))
    return fmt::format("{} on every rank", peaks[0]);
  return fmt::format("{}{}", fmt::join(peaks, " "), peaks.size() == 1 ? "" : "  (rank 0 first)");
}

std::string blocking_text(const std::vector<Wait>& cycle) {
  if (cycle.empty()) return "work too\n";
  std::string text = "would deadlock:\n";
  for (const Wait& wait : cycle) text += fmt::format("    {}\n", describe(wait));
  return text;
}

}  // namespace

std::string title_of(const Schedule& schedule, const Times& times) {
  const int a_rank = virtual_stages(schedule);
  const std::string stages =
      a_rank == 1 ? counted(schedule.stages, "stage")
                  : fmt::format("{} on {}", counted(schedule.stages, "stage"), counted(schedule.ranks, "rank"));
  return fmt::format("{}: {}, {}, {}", schedule.name, stages, counted(schedule.microbatches, "microbatch", "es"),
                     times_text(schedule, times));
}

std::string bubble_text(const Prediction& prediction) {
  std::string percent = fmt::format("{:.1f}%", 100 * prediction.bubble);
  double idle = 0;
  for (const double busy : prediction.busy) idle += prediction.makespan - busy;
  const double whole = prediction.makespan * static_cast<double>(prediction.busy.size());
  if (idle < 0.5 || idle != std::round(idle) || whole != std::round(whole) || whole > 1e9) return percent;
  const long common = std::gcd(static_cast<long>(idle), static_cast<long>(whole));
  return fmt::format("{} ({}/{})", percent, static_cast<long>(idle) / common, static_cast<long>(whole) / common);
}

std::string text_of(const Schedule& schedule, const Times& times, const Verdict& verdict, const TextStyle& style) {
  const Prediction& prediction = verdict.prediction;
  const double tick = tick_of(prediction);
  std::string text = title_of(schedule, times) + "\n";
  if (tick != 1) text += fmt::format("(a tick is {:.4g})\n", tick);
  text += fmt::format("\n{}\n", pipeline::text_of(schedule, prediction, style));
  text += fmt::format("bubble              {} of a makespan of {:g}\n", bubble_text(prediction), prediction.makespan);
  text += fmt::format("if steps overlap    {:.1f}%\n", 100 * prediction.overlapping_bubble);
  text += fmt::format("peak activations    {}\n", peaks_text(prediction.peak_activations));
  text += fmt::format("messages            {}\n", prediction.messages);
  text += "asynchronous sends  work\n";
  return text + "blocking sends      " + blocking_text(verdict.blocking_cycle);
}

json json_of(const Schedule& schedule, const Times& times, const Verdict& verdict, bool with_sends) {
  const bool good = verdict.problem.empty();
  const Prediction& prediction = verdict.prediction;
  json document = {
      {"name", schedule.name},
      {"stages", schedule.ranks},
      {"virtual_stages", virtual_stages(schedule)},
      {"all_stages", schedule.stages},
      {"microbatches", schedule.microbatches},
      {"actions", json_of(schedule)},
      {"times", {{"F", times.forward}, {"I", times.input}, {"W", times.weight}}},
      {"valid", good},
      {"note", schedule.note.empty() ? json() : json(schedule.note)},
      {"problem", good ? json() : json(verdict.problem)},
      {"deadlock_free", good},
      {"bubble_fraction", good ? json(prediction.bubble) : json()},
      {"bubble_if_steps_overlap", good ? json(prediction.overlapping_bubble) : json()},
      {"peak_activations", good ? json(prediction.peak_activations) : json()},
      {"makespan", good ? json(prediction.makespan) : json()},
      {"busy", good ? json(prediction.busy) : json()},
      {"messages", good ? json(prediction.messages) : json()},
      {"cycle", json_of(verdict.cycle)},
      {"blocking_sends",
       {{"deadlock_free", good && verdict.blocking_cycle.empty()}, {"cycle", json_of(verdict.blocking_cycle)}}},
  };
  if (with_sends) document["lowered"] = json_of(verdict.lowered);
  return document;
}

}  // namespace lockstep::cli::scheduling
