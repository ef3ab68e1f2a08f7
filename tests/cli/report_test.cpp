#include "lockstep/cli/benchmark/report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/environment.h"

namespace lockstep::cli::benchmark {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json document(double busbw, int wrong) {
  const json row = {{"op", "all_reduce"},
                    {"algorithm", "ring"},
                    {"asked_for", "auto"},
                    {"transport", "shm"},
                    {"buffer", "arena"},
                    {"bytes", 4194304},
                    {"count", 1048576},
                    {"dtype", "float32"},
                    {"redop", "sum"},
                    {"root", 0},
                    {"algbw_gbs", busbw},
                    {"busbw_gbs", busbw},
                    {"wrong", wrong},
                    {"percent_of_limit", 93.4},
                    {"ranks", 2},
                    {"time_us", {{"min", 0.1234}, {"p50", 12.34}, {"p99", 123.4}, {"max", 12345.6}, {"mean", 1}}}};
  return {{"op", "all_reduce"},
          {"ranks", 2},
          {"cores", 2},
          {"rotate", false},
          {"results", {row, row}},
          {"notes", json::array()},
          {"limits", {{"bytes", 4194304}, {"memory_traffic_gbs", nullptr}, {"socket_exchange_gbs", 1.5}}}};
}

TEST(Report, LinesUp) {
  std::istringstream lines(table(document(10, 0)));
  std::string head;
  std::string units;
  std::string row;
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "# all_reduce, 2 ranks on 2 cores, float32, sum, over shm, algorithm ring*, arena");
  std::getline(lines, line);
  EXPECT_EQ(line, "#   memory, one hot buffer");
  std::getline(lines, head);
  std::getline(lines, units);
  std::getline(lines, row);
  for (const char* title : {"size", "#wrong", "busbw"}) {
    const auto end = head.find(title) + std::string(title).size();
    EXPECT_NE(row[end - 1], ' ') << title;
    EXPECT_TRUE(end == row.size() || row[end] == ' ') << title;
  }
  EXPECT_THAT(row, HasSubstr("12.3     123    1.00"));
}

TEST(Report, WhatRowsDifferInIsAColumnAndLinesStayShort) {
  json several = document(10, 0);
  several["results"][1]["transport"] = "tcp";
  several["results"][1]["algorithm"] = "halving_doubling";
  several["results"][1]["asked_for"] = "halving_doubling";
  several["results"][1]["dtype"] = "bfloat16";
  const std::string text = table(several);
  EXPECT_THAT(text, HasSubstr("  bfloat16  tcp        halving_doubling "));
  EXPECT_THAT(text, HasSubstr("  float32   shm        ring* "));
  EXPECT_THAT(text, HasSubstr("busbw  #wrong"));
  EXPECT_THAT(text, HasSubstr("* chosen by auto"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(Report, TheAverageIsThatOfAllRows) {
  json two = document(10, 0);
  two["results"][1]["busbw_gbs"] = 5;
  EXPECT_THAT(footer(two), HasSubstr("# Avg bus bandwidth    : 7.500 GB/s\n"));
}

TEST(Report, ARowIsALineAsSoonAsItIsThere) {
  json plan = document(10, 0);
  for (json& row : plan["results"])
    for (const char* later : {"time_us", "algbw_gbs", "busbw_gbs", "percent_of_limit"}) row.erase(later);
  const Table lines(plan);
  EXPECT_THAT(table(document(10, 0)), testing::StartsWith(lines.heading() + lines.line(document(10, 0)["results"][0])));
}

TEST(Report, ComplainsOfWrongAndOfSlowRows) {
  EXPECT_EQ(complaints(document(10, 0), 0), "");
  EXPECT_EQ(complaints(document(10, 0), 10), "");
  EXPECT_THAT(complaints(document(10, 0), 10.5),
              HasSubstr("all_reduce of 4M over shm, ring, arena buffer: busbw is 10"));
  EXPECT_THAT(complaints(document(10, 7), 0), HasSubstr("7 elements are wrong"));
}

TEST(Report, BriefBytes) {
  EXPECT_EQ(brief_bytes(8), "8");
  EXPECT_EQ(brief_bytes(65536), "64K");
  EXPECT_EQ(brief_bytes(1.5 * 1024 * 1024), "1.5M");
}

}  // namespace
}  // namespace lockstep::cli::benchmark
