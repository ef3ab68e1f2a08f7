#include "lockstep/cli/benchmark/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace lockstep::cli::benchmark {
namespace {

using nlohmann::json;

struct Column {
  const char* title;
  const char* unit;
  bool left = false;
};

constexpr Column kColumns[] = {
    {"size", "(B)"},     {"count", "(elements)"}, {"type", "", true},      {"redop", "", true},
    {"root", ""},        {"transport", "", true}, {"algorithm", "", true}, {"buffer", "", true},
    {"min", "(us)"},     {"p50", "(us)"},         {"p99", "(us)"},         {"max", "(us)"},
    {"algbw", "(GB/s)"}, {"busbw", "(GB/s)"},     {"#wrong", ""},          {"% limit", ""}};

// Three digits that count, whatever the size.
std::string number(double value) {
  return fmt::format("{:.{}f}", value, value < 0.995 ? 3 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

std::string counted(int count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

bool one_of(const std::string& op, std::initializer_list<const char*> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](const char* other) { return op == other; });
}

std::vector<std::string> cells(const json& row) {
  const std::string op = row["op"];
  const bool reduces = one_of(op, {"all_reduce", "reduce", "reduce_scatter"});
  const bool rooted = one_of(op, {"reduce", "broadcast", "scatter", "gather"});
  const json& time = row["time_us"];
  std::string algorithm = row["algorithm"];
  if (row["asked_for"] == "auto") algorithm = fmt::format("auto ({})", algorithm);
  return {std::to_string(row["bytes"].get<std::uint64_t>()),
          std::to_string(row["count"].get<std::uint64_t>()),
          row["dtype"],
          reduces ? row["redop"].get<std::string>() : "none",
          rooted ? std::to_string(row["root"].get<int>()) : "-1",
          row["transport"],
          algorithm,
          row["buffer"],
          number(time["min"]),
          number(time["p50"]),
          number(time["p99"]),
          number(time["max"]),
          number(row["algbw_gbs"]),
          number(row["busbw_gbs"]),
          row["wrong"].is_null() ? "N/A" : std::to_string(row["wrong"].get<std::uint64_t>()),
          row["percent_of_limit"].is_null() ? "-" : fmt::format("{:.0f}", row["percent_of_limit"].get<double>())};
}

std::string line(const std::vector<std::string>& texts, const std::vector<std::size_t>& widths, const char* start) {
  std::string result = start;
  for (std::size_t i = 0; i < texts.size(); ++i)
    result +=
        kColumns[i].left ? fmt::format("  {:<{}}", texts[i], widths[i]) : fmt::format("  {:>{}}", texts[i], widths[i]);
  return result.substr(0, result.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string brief_bytes(double bytes) {
  const char* units[] = {"", "K", "M", "G"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit < 3) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g}{}", bytes, units[unit]);
}

std::string table(const json& document) {
  std::vector<std::vector<std::string>> rows(2);
  for (const Column& column : kColumns) {
    rows[0].emplace_back(column.title);
    rows[1].emplace_back(column.unit);
  }
  for (const json& row : document["results"]) rows.push_back(cells(row));
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());

  std::string text = fmt::format("# {}, {} on {}, {}\n", document["op"].get<std::string>(),
                                 counted(document["ranks"], "rank"), counted(document["cores"], "core"),
                                 document["rotate"].get<bool>() ? "cold buffers" : "one hot buffer");
  for (std::size_t i = 0; i < rows.size(); ++i) text += line(rows[i], widths, i < 2 ? "#" : " ");
  const json& limits = document["limits"];
  const std::string at = brief_bytes(limits["bytes"].get<double>());
  if (!limits["memory_traffic_gbs"].is_null())
    text += fmt::format(
        "# memory traffic at {}: {:.1f} GB/s (non-temporal copy {:.1f}, the op's own reads and writes {:.1f})\n", at,
        limits["memory_traffic_gbs"].get<double>(), limits["memory_copy_gbs"].get<double>(),
        limits["memory_kernel_gbs"].get<double>());
  if (!limits["socket_exchange_gbs"].is_null())
    text += fmt::format("# bare sockets at {}: {:.2f} GB/s each way at once\n", at,
                        limits["socket_exchange_gbs"].get<double>());
  for (const json& note : document["notes"]) text += fmt::format("# {}\n", note.get<std::string>());
  return text;
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
