#include "lockstep/cli/comparison/ranks_report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace lockstep::cli::comparison {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json row(const char* name, int ranks, int threads, double ms, double alone) {
  return {{"name", name},
          {"ranks", ranks},
          {"threads", threads},
          {"step_ms", {{"p50", ms}, {"p99", 2 * ms}}},
          {"phase_ms",
           {{"forward", ms / 4},
            {"backward", ms / 2},
            {"optimizer", ms / 8},
            {"exposed_communication", 0.5},
            {"other", 0.25}}},
          {"losses", {0.7, 0.4}},
          {"parameters", 264450},
          {"weights_agree", true},
          {"first_losses_difference", ranks == 1 ? 0.0 : 1.5e-7},
          {"loss_difference", ranks == 1 ? 0.0 : 2.5e-7},
          {"speedup", alone / ms}};
}

json document(double ranks_ms, int cores = 2) {
  json d = {{"program", "build/release/lockstep"},
            {"cores", cores},
            {"model", "mlp"},
            {"dim", 128},
            {"depth", 16},
            {"batch", 1024},
            {"steps", 40},
            {"rounds", 3}};
  d["rows"].push_back(row("one process, one thread", 1, 1, 20, 20));
  if (cores > 1) d["rows"].push_back(row("one process, all cores", 1, cores, 16, 20));
  d["rows"].push_back(row("2 ranks, ddp", 2, 1, ranks_ms, 20));
  return d;
}

TEST(RanksReport, FitsEightyColumns) {
  for (const double ms : {10.0, 12345.678}) {
    std::istringstream lines(describe_ranks(document(ms)));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST(RanksReport, SaysWhatWasGained) {
  const std::string text = describe_ranks(document(10));
  EXPECT_THAT(text, HasSubstr("2 ranks are 2.00 times as fast as one process with one thread\n(100% of what"));
  EXPECT_THAT(text, HasSubstr("and 1.60 times as fast as one process\nwith 2 threads."));
  EXPECT_THAT(text,
              HasSubstr("The loss went from 0.700000 to 0.400000.\nAll 40 losses agree to 6 digits in all rows."));
}

TEST(RanksReport, SaysWhatWasLost) {
  const std::string text = describe_ranks(document(40));
  EXPECT_THAT(text, HasSubstr("2 ranks are 2.00 times slower than one process with one thread\n(25% of what"));
  EXPECT_THAT(text, HasSubstr("and 2.50 times slower than one process\nwith 2 threads."));
}

TEST(RanksReport, SidesThatAreEquallyFast) {
  EXPECT_THAT(describe_ranks(document(16.1)), HasSubstr("and as fast as one process\nwith 2 threads."));
}

TEST(RanksReport, OneCoreCanGainNothing) {
  const std::string text = describe_ranks(document(40, 1));
  EXPECT_THAT(text, HasSubstr("may use 1 core only"));
  EXPECT_THAT(text, Not(HasSubstr("times slower")));
}

TEST(RanksReport, SidesThatDifferAreSaid) {
  json differs = document(10);
  EXPECT_TRUE(sides_agree(differs));
  differs["rows"].back()["first_losses_difference"] = 0.01;
  EXPECT_FALSE(sides_agree(differs));
  EXPECT_THAT(describe_ranks(differs), HasSubstr("do NOT agree"));
  differs["rows"].back()["first_losses_difference"] = nullptr;  // JSON has no NaN
  EXPECT_FALSE(sides_agree(differs));
  EXPECT_THAT(describe_ranks(differs), HasSubstr("not numbers"));
  json weights = document(10);
  weights["rows"].back()["weights_agree"] = false;
  EXPECT_FALSE(sides_agree(weights));
  EXPECT_THAT(describe_ranks(weights), HasSubstr("are different"));
}

TEST(RanksReport, RoundingErrorsThatGrowAreNoDisagreement) {
  json drifts = document(10);
  drifts["rows"].back()["loss_difference"] = 0.13;
  EXPECT_TRUE(sides_agree(drifts));
  EXPECT_THAT(describe_ranks(drifts), HasSubstr("agree to 6 digits at first. Later they drift apart"));
}

}  // namespace
}  // namespace lockstep::cli::comparison
