#include "lockstep/cli/benchmark/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/cli/wrap.h"

namespace lockstep::cli::benchmark {
namespace {

using nlohmann::json;

constexpr std::size_t kWidth = 80;

// The number with at least three significant digits, or with three decimals if it is below 1.
std::string number(double value) {
  return fmt::format("{:.{}f}", value, value < 0.995 ? 3 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

std::string counted(int count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

bool one_of(const std::string& op, std::initializer_list<const char*> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](const char* other) { return op == other; });
}

std::string whole(const json& value) { return std::to_string(value.get<std::uint64_t>()); }

std::string algorithm_of(const json& row) {
  return row["algorithm"].get<std::string>() + (row["asked_for"] == "auto" ? "*" : "");
}

std::string limit_of(const json& row) {
  return row["percent_of_limit"].is_null() ? "-" : fmt::format("{:.0f}", row["percent_of_limit"].get<double>());
}

struct Column {
  const char* title;
  const char* unit;
  std::string (*text)(const json& row);
  // The width that the column's figures need. 0 stands for a property of a row: it is a column only if rows differ in
  // it, and otherwise part of the heading.
  std::size_t figures = 0;
  int importance = 9;  // columns below 9 are left out if there is no room, the lowest first
};

const Column kColumns[] = {
    {"size", "(B)", [](const json& row) { return whole(row["bytes"]); }, 4},
    {"count", "(elements)", [](const json& row) { return whole(row["count"]); }, 5, 1},
    {"type", "", [](const json& row) { return row["dtype"].get<std::string>(); }},
    {"redop", "", [](const json& row) { return row["redop"].get<std::string>(); }},
    {"transport", "", [](const json& row) { return row["transport"].get<std::string>(); }},
    {"algorithm", "", algorithm_of},
    {"buffer", "", [](const json& row) { return row["buffer"].get<std::string>(); }},
    {"p50", "(us)", [](const json& row) { return number(row["time_us"]["p50"]); }, 6},
    {"p99", "(us)", [](const json& row) { return number(row["time_us"]["p99"]); }, 6, 2},
    {"mean", "(us)", [](const json& row) { return number(row["time_us"]["mean"]); }, 6, 5},
    {"algbw", "(GB/s)", [](const json& row) { return number(row["algbw_gbs"]); }, 6, 3},
    {"busbw", "(GB/s)", [](const json& row) { return number(row["busbw_gbs"]); }, 6},
    {"#wrong", "", [](const json& row) { return row["wrong"].is_null() ? "N/A" : whole(row["wrong"]); }, 6},
    {"% limit", "", limit_of, 7, 4},
};

bool known_before(const Column& column) {
  return column.figures == 0 || column.title == std::string_view("size") || column.title == std::string_view("count");
}

bool is_left(const Column& column) { return column.figures == 0; }

bool differs(const Column& column, const json& rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const json& row) { return column.text(row) != column.text(rows.front()); });
}

// "float32, sum, over shm, algorithm direct*, arena memory, one hot buffer": what all rows have in common.
std::string in_common(const json& rows, bool rotate) {
  const json& row = rows.front();
  const std::string op = row["op"];
  std::string text;
  const auto add = [&](const Column& column, bool applies, const char* form) {
    if (applies && !differs(column, rows)) text += fmt::format(fmt::runtime(form), column.text(row));
  };
  const bool moves = op != "barrier";
  add(kColumns[2], moves, ", {}");
  add(kColumns[3], one_of(op, {"all_reduce", "reduce", "reduce_scatter"}), ", {}");
  if (one_of(op, {"reduce", "broadcast", "scatter", "gather"}))
    text += fmt::format(", root {}", row["root"].get<int>());
  add(kColumns[4], true, ", over {}");
  add(kColumns[5], op != "p2p", ", algorithm {}");
  add(kColumns[6], moves, ", {} memory");
  if (moves) text += rotate ? ", cold buffers" : ", one hot buffer";
  return text;
}

std::string cell(const std::string& text, std::size_t width, bool left) {
  return left ? fmt::format("  {:<{}}", text, width) : fmt::format("  {:>{}}", text, width);
}

std::string trimmed(const std::string& line) { return line.substr(0, line.find_last_not_of(' ') + 1) + "\n"; }

std::string wrapped(const std::string& text) { return wrap(text, "# ", "#   ") + "\n"; }

}  // namespace

Table::Table(const json& document) {
  const json& rows = document["results"];
  std::size_t total = 1;
  for (std::size_t i = 0; i < std::size(kColumns); ++i) {
    const Column& column = kColumns[i];
    if (column.figures == 0 && !differs(column, rows)) continue;
    std::size_t width = std::max({column.figures, std::strlen(column.title), std::strlen(column.unit)});
    if (known_before(column))
      for (const json& row : rows) width = std::max(width, column.text(row).size());
    shown_.push_back({i, width});
    total += 2 + width;
  }
  while (total > kWidth) {
    const auto least = std::min_element(shown_.begin(), shown_.end(), [](const Shown& a, const Shown& b) {
      return kColumns[a.column].importance < kColumns[b.column].importance;
    });
    if (kColumns[least->column].importance == 9) break;
    total -= 2 + least->width;
    shown_.erase(least);
  }

  heading_ =
      wrapped(fmt::format("{}, {} on {}{}", document["op"].get<std::string>(), counted(document["ranks"], "rank"),
                          counted(document["cores"], "core"), in_common(rows, document["rotate"].get<bool>())));
  std::string titles = "#", units = "#";
  for (const auto& [column, width] : shown_) {
    titles += cell(kColumns[column].title, width, is_left(kColumns[column]));
    units += cell(kColumns[column].unit, width, is_left(kColumns[column]));
  }
  heading_ += trimmed(titles) + trimmed(units);
}

std::string Table::line(const json& row) const {
  std::string text = " ";
  for (const auto& [column, width] : shown_) text += cell(kColumns[column].text(row), width, is_left(kColumns[column]));
  return trimmed(text);
}

std::string footer(const json& document) {
  std::string text;
  const json& rows = document["results"];
  double sum = 0;
  for (const json& row : rows) sum += row["busbw_gbs"].get<double>();
  text += fmt::format("# Avg bus bandwidth    : {:.3f} GB/s\n",
                      sum / static_cast<double>(std::max<std::size_t>(rows.size(), 1)));
  const json& limits = document["limits"];
  const std::string at = brief_bytes(limits["bytes"].get<double>());
  if (!limits["memory_traffic_gbs"].is_null())
    text += wrapped(fmt::format(
        "memory traffic at {}: {:.1f} GB/s (non-temporal copy {:.1f}, the op's own reads and writes {:.1f})", at,
        limits["memory_traffic_gbs"].get<double>(), limits["memory_copy_gbs"].get<double>(),
        limits["memory_kernel_gbs"].get<double>()));
  if (!limits["socket_exchange_gbs"].is_null())
    text += fmt::format("# bare sockets at {}: {:.2f} GB/s each way at once\n", at,
                        limits["socket_exchange_gbs"].get<double>());
  if (std::any_of(rows.begin(), rows.end(), [](const json& row) { return row["asked_for"] == "auto"; }))
    text += "# * chosen by auto\n";
  for (const json& note : document["notes"]) text += wrapped(note.get<std::string>());
  return text;
}

std::string table(const json& document) {
  const Table lines(document);
  std::string text = lines.heading();
  for (const json& row : document["results"]) text += lines.line(row);
  return text + footer(document);
}

std::string complaints(const json& document, double min_bandwidth) {
  std::string text;
  for (const json& row : document["results"]) {
    const std::string what = fmt::format("{} of {} over {}, {}, {} buffer", row["op"].get<std::string>(),
                                         brief_bytes(row["bytes"].get<double>()), row["transport"].get<std::string>(),
                                         row["algorithm"].get<std::string>(), row["buffer"].get<std::string>());
    if (!row["wrong"].is_null() && row["wrong"] != 0)
      text += fmt::format("{}: {} elements are wrong\n", what, row["wrong"].get<std::uint64_t>());
    if (row["busbw_gbs"].get<double>() < min_bandwidth)
      text += fmt::format("{}: busbw is {:.3g} GB/s, below --min-bw {:g}\n", what, row["busbw_gbs"].get<double>(),
                          min_bandwidth);
  }
  return text;
}

}  // namespace lockstep::cli::benchmark
