#include "lockstep/parallel/pipeline/schedule/csv.h"

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "lockstep/base/one_line.h"
#include "lockstep/error.h"

namespace lockstep::pipeline {
namespace {

constexpr std::string_view kBlank = " \t\r";
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Removes the text before the separator from the front of `rest`, and returns it.
std::string_view take(std::string_view& rest, char separator) {
  const auto end = rest.find(separator);
  const std::string_view item = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return item;
}

// True for "0UNSHARD" and the like: actions of FSDP for a stage, which have no microbatch.
bool is_of_fsdp(std::string_view cell) {
  const auto kind_at = cell.find_first_not_of("0123456789");
  if (kind_at == 0 || kind_at == std::string_view::npos) return false;
  const std::string_view kind = cell.substr(kind_at);
  return kind == "UNSHARD" || kind == "RESHARD" || kind == "REDUCE_GRAD";
}

void read_cell(std::string_view cell, std::vector<Action>& list, int& skipped) {
  constexpr std::string_view kPair = ")OVERLAP_F_B";
  if (is_of_fsdp(cell)) {
    ++skipped;
  } else if (cell.starts_with('(') && cell.ends_with(kPair)) {
    std::string_view inner = cell.substr(1, cell.size() - 1 - kPair.size());
    while (!inner.empty()) list.push_back(parse_action(trimmed(take(inner, ';'))));
  } else {
    list.push_back(parse_action(cell));
  }
}

// Adds the number of FSDP actions that it left out to `skipped`.
std::vector<Action> read_line(std::string_view line, std::size_t number, int& skipped) {
  std::vector<Action> list;
  for (std::size_t column = 1; !line.empty(); ++column) {
    const std::string_view cell = trimmed(take(line, ','));
    if (cell.empty()) continue;
    try {
      read_cell(one_line(cell), list, skipped);
    } catch (const UsageError& error) {
      std::rethrow_exception(with_context(error, fmt::format("line {}, column {}", number, column)));
    }
  }
  return list;
}

// For each stage, the rank that has most of its actions; of equal ranks, the lowest.
std::vector<Rank> find_ranks(const Schedule& schedule) {
  std::map<int, std::map<Rank, int>> counts;
  for (Rank rank = 0; rank < schedule.ranks; ++rank)
    for (const Action& action : schedule.actions[index_of(rank)]) ++counts[action.stage][rank];
  std::vector<Rank> ranks;
  for (const auto& [stage, of_stage] : counts) {
    if (stage != static_cast<int>(ranks.size()))
      throw UsageError(fmt::format("stage {} is on no rank, but there is a stage {}", ranks.size(), stage));
    const auto most = std::max_element(of_stage.begin(), of_stage.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    ranks.push_back(most->first);
  }
  return ranks;
}

}  // namespace

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (const auto& list : schedule.actions) {
    std::string line;
    for (const Action& action : list) line += fmt::format("{}{}", line.empty() ? "" : ",", to_string(action));
    text += line + "\n";
  }
  return text;
}

Schedule from_csv(std::string_view text, const std::string& name) {
  Schedule schedule;
  schedule.name = name;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // the byte order mark of some editors
  while (!text.empty() && (text.back() == '\n' || kBlank.find(text.back()) != std::string_view::npos))
    text.remove_suffix(1);
  int skipped = 0;
  for (std::size_t number = 1; !text.empty(); ++number) {
    schedule.actions.push_back(read_line(take(text, '\n'), number, skipped));
    if (schedule.actions.back().empty())
      throw UsageError(fmt::format("line {} has no action, so rank {} would do nothing", number, number - 1),
                       "one line for each rank that has a stage, and no others");
    for (const Action& action : schedule.actions.back())
      schedule.microbatches = std::max(schedule.microbatches, action.microbatch + 1);
  }
  if (schedule.actions.empty())
    throw UsageError("there is no action in it", "one line per rank, such as 0F0,0F1,0B0,0B1");
  schedule.ranks = static_cast<int>(schedule.actions.size());
  schedule.rank_of_stage = find_ranks(schedule);
  schedule.stages = static_cast<int>(schedule.rank_of_stage.size());
  if (skipped > 0)
    schedule.note = fmt::format("left out {} of FSDP (UNSHARD, RESHARD, REDUCE_GRAD): stages are not sharded here",
                                skipped == 1 ? "1 action" : fmt::format("{} actions", skipped));
  return schedule;
}

Schedule read_csv(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
      throw UsageError(fmt::format("{} is a folder", path), "a CSV file");
    file.open(path, std::ios::binary);
    if (!file) throw UsageError(fmt::format("cannot read {}", path), "a CSV file that exists and is yours");
  }
  std::istream& stream = path == "-" ? std::cin : file;
  const std::string from = path == "-" ? "stdin" : path;
  std::string text(kMostBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kMostBytes)
    throw UsageError(fmt::format("{} has more than {} MB, which no schedule has", from, kMostBytes >> 20),
                     "a CSV file");
  try {
    return from_csv(text, path == "-" ? from : std::filesystem::path(path).filename().string());
  } catch (const UsageError& error) {
    std::rethrow_exception(with_context(error, from));
  }
}

}  // namespace lockstep::pipeline
