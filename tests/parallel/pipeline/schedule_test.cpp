#include "lockstep/parallel/pipeline/schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pipeline/csv.h"
#include "lockstep/parallel/pipeline/verify.h"

namespace lockstep::pipeline {
namespace {

using testing::HasSubstr;

struct Case {
  std::string name;
  int ranks;
  int microbatches;
  int virtual_stages;

  Schedule schedule() const { return make_schedule(name, ranks, microbatches, virtual_stages); }
  std::string text() const {
    return fmt::format("{} {} ranks, {} microbatches, {} virtual", name, ranks, microbatches, virtual_stages);
  }
};

std::vector<Case> cases(const std::vector<int>& ranks, const std::vector<int>& microbatches) {
  std::vector<Case> all;
  for (const std::string& name : schedule_names())
    for (const int p : ranks)
      for (const int m : microbatches)
        for (int v = 1; v <= (name == "interleaved" ? 3 : 1); ++v) all.push_back({name, p, m, v});
  return all;
}

std::vector<int> range(int first, int last) {
  std::vector<int> numbers;
  for (int i = first; i <= last; ++i) numbers.push_back(i);
  return numbers;
}

double bubble(const Case& one, const Times& times = {}) { return verify(one.schedule(), times).prediction.bubble; }

TEST(PipelineSchedule, EveryOneCanRunWhateverTheNumbers) {
  auto all = cases({1, 2, 3, 4, 8}, {1, 2, 4, 7, 8});
  const auto more = cases(range(1, 12), range(1, 24));
  all.insert(all.end(), more.begin(), more.end());
  for (const Case& one : all) {
    const Verdict verdict = examine(one.schedule());
    ASSERT_EQ(verdict.problem, "") << one.text();
    // A forward and a backward for each microbatch and boundary between ranks, no message inside a rank.
    const int boundaries = one.ranks == 1 ? 0 : one.ranks * one.virtual_stages - 1;
    ASSERT_EQ(verdict.prediction.messages, 2 * one.microbatches * boundaries) << one.text();
  }
}

TEST(PipelineSchedule, HasEveryForwardAndBackwardOnce) {
  for (const Case& one : cases({1, 2, 3, 4, 8}, {1, 2, 4, 7, 8})) {
    const Schedule schedule = one.schedule();
    EXPECT_EQ(schedule.name, one.name);
    EXPECT_EQ(schedule.ranks, one.ranks);
    EXPECT_EQ(schedule.stages, one.ranks * one.virtual_stages);
    EXPECT_EQ(schedule.microbatches, one.microbatches);
    EXPECT_EQ(virtual_stages(schedule), one.virtual_stages);
    EXPECT_FALSE(is_lowered(schedule));
    for (const auto& list : schedule.actions) {
      std::map<Kind, int> counts;
      for (const Action& action : list) ++counts[action.kind];
      const int each = one.microbatches * one.virtual_stages;
      const auto expected = one.name == "zb-h1" ? std::map<Kind, int>{{Kind::F, each}, {Kind::I, each}, {Kind::W, each}}
                                                : std::map<Kind, int>{{Kind::F, each}, {Kind::B, each}};
      EXPECT_EQ(counts, expected) << one.text();
    }
  }
}

// The formulas of interleaved are for full rounds; a shorter one holds less and idles more.
bool in_full_rounds(const Case& one) { return one.virtual_stages == 1 || one.microbatches % one.ranks == 0; }

int peak_formula(const Case& one, Rank rank) {
  const auto& [name, p, m, v] = one;
  if (name == "naive") return 1;
  if (name == "gpipe") return m;
  if (name == "zb-h1") return std::min(m, p);
  if (name == "1f1b" || v == 1) return std::min(m, p - rank);
  return std::min(v * m, (v - 1) * p + 2 * (p - 1 - rank) + 1);
}

TEST(PipelineSchedule, HoldsAsManyActivationsAsItsFileSays) {
  for (const Case& one : cases({1, 2, 3, 4, 8}, {1, 2, 4, 7, 8, 16})) {
    const auto peaks = verify(one.schedule()).prediction.peak_activations;
    for (Rank rank = 0; rank < one.ranks; ++rank) {
      const int peak = peaks[static_cast<std::size_t>(rank)];
      EXPECT_LE(peak, peak_formula(one, rank)) << one.text();
      if (in_full_rounds(one)) {
        EXPECT_EQ(peak, peak_formula(one, rank)) << one.text();
      }
    }
  }
}

TEST(PipelineSchedule, TheBubblesOfFourStagesAndEightMicrobatches) {
  EXPECT_DOUBLE_EQ(bubble({"naive", 4, 8, 1}), 3.0 / 4);
  EXPECT_DOUBLE_EQ(bubble({"gpipe", 4, 8, 1}), 3.0 / 11);
  EXPECT_DOUBLE_EQ(bubble({"1f1b", 4, 8, 1}), 3.0 / 11);
  EXPECT_DOUBLE_EQ(bubble({"interleaved", 4, 8, 2}), 3.0 / 19);
  EXPECT_DOUBLE_EQ(bubble({"zb-h1", 4, 8, 1}), 1.0 / 9);
}

TEST(PipelineSchedule, TheBubblesOfEightStagesAndSixteenMicrobatches) {
  EXPECT_DOUBLE_EQ(bubble({"naive", 8, 16, 1}), 7.0 / 8);
  EXPECT_DOUBLE_EQ(bubble({"gpipe", 8, 16, 1}), 7.0 / 23);
  EXPECT_DOUBLE_EQ(bubble({"1f1b", 8, 16, 1}), 7.0 / 23);
  EXPECT_DOUBLE_EQ(bubble({"interleaved", 8, 16, 2}), 7.0 / 39);
  EXPECT_DOUBLE_EQ(bubble({"zb-h1", 8, 16, 1}), 7.0 / 55);
}

double bubble_formula(const Case& one, const Times& times) {
  const double p = one.ranks;
  const double m = one.microbatches;
  if (one.name == "naive") return (p - 1) / p;
  if (one.name != "zb-h1") return (p - 1) / (one.virtual_stages * m + p - 1);
  const double work = m * (times.forward + times.input + times.weight);
  const double idle = (p - 1) * (times.forward + times.input) - (std::min(m, p) - 1) * times.weight;
  return idle / (work + idle);
}

TEST(PipelineSchedule, BubblesFollowTheFormulasForAnyTimes) {
  for (const Times& times : {Times{1, 1, 1}, Times{2, 3, 2}, Times{1, 2, 3}, Times{10, 12, 8}})
    for (const Case& one : cases({1, 2, 3, 4, 8}, {1, 2, 4, 7, 8, 16})) {
      if (one.name == "zb-h1" && times.weight > std::min(times.forward, times.input)) continue;
      EXPECT_GE(bubble(one, times), bubble_formula(one, times) - 1e-12) << one.text();
      if (in_full_rounds(one)) {
        EXPECT_NEAR(bubble(one, times), bubble_formula(one, times), 1e-12) << one.text();
      }
    }
}

TEST(PipelineSchedule, InterleavedWithOneStageARankIs1F1B) {
  for (const int p : {1, 2, 4})
    for (const int m : {1, 3, 4, 9})
      EXPECT_EQ(make_schedule("interleaved", p, m, 1).actions, make_schedule("1f1b", p, m).actions);
}

TEST(PipelineSchedule, AShorterLastRoundIsBetterThanOneStageARank) {
  for (const int m : {5, 6, 7, 9, 10, 11}) EXPECT_LT(bubble({"interleaved", 4, m, 2}), bubble({"1f1b", 4, m, 1})) << m;
}

TEST(PipelineSchedule, TheListsAsTheyAre) {
  EXPECT_EQ(to_csv(make_schedule("naive", 2, 2)), "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(to_csv(make_schedule("gpipe", 2, 2)), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_EQ(to_csv(make_schedule("1f1b", 2, 3)), "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  EXPECT_EQ(to_csv(make_schedule("interleaved", 2, 2)),
            "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n");
  EXPECT_EQ(to_csv(make_schedule("interleaved", 2, 1)), "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n");
  EXPECT_EQ(to_csv(make_schedule("zb-h1", 2, 3)),
            "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n");
}

std::string refusal(const std::string& name, int ranks, int microbatches, std::optional<int> virtual_stages = {}) {
  try {
    make_schedule(name, ranks, microbatches, virtual_stages);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "made it";
}

TEST(PipelineSchedule, WhatCannotBeIsRefused) {
  EXPECT_EQ(refusal("1f1", 4, 8), "there is no schedule '1f1'; try: 1f1b");
  EXPECT_THAT(refusal("wavefront", 4, 8), HasSubstr("try: naive, gpipe, 1f1b, interleaved, zb-h1"));
  EXPECT_THAT(refusal("gpipe", 0, 8), HasSubstr("0 stages, 8 microbatches"));
  EXPECT_THAT(refusal("gpipe", 4, 0), HasSubstr("at least 1 of each"));
  EXPECT_THAT(refusal("interleaved", 4, 8, 0), HasSubstr("0 virtual stages"));
  EXPECT_THAT(refusal("zb-h1", 4, 8, 2), HasSubstr("zb-h1 has one stage a rank, not 2"));
  EXPECT_THAT(refusal("gpipe", 2'000'000'000, 2'000'000'000), HasSubstr("too many"));
}

}  // namespace
}  // namespace lockstep::pipeline
