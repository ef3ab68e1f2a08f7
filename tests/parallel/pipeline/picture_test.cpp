#include "lockstep/parallel/pipeline/schedule/picture.h"

#include <gmock/gmock.h>

#include "lockstep/parallel/pipeline/schedule/csv.h"

namespace lockstep::pipeline {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string text(const Schedule& schedule, const Times& times = {}, const TextStyle& style = {}) {
  return text_of(schedule, verify(schedule, times).prediction, style);
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(PipelinePicture, IsARowARankAndAColumnATick) {
  EXPECT_EQ(text(make_schedule("1f1b", 2, 3)),
            "tick    0              5              10\n"
            "rank 0  F0 F1 .  .  B0--- F2 B1--- .  B2---\n"
            "rank 1  .  F0 B0--- F1 B1--- F2 B2--- .  .\n");
  EXPECT_EQ(text(make_schedule("zb-h1", 2, 2)),
            "tick    0              5\n"
            "rank 0  F0 F1 .  I0 W0 I1 W1\n"
            "rank 1  .  F0 I0 F1 I1 W0 W1\n");
}

TEST(PipelinePicture, NamesTheStageWhereARankHasSeveral) {
  EXPECT_EQ(text(make_schedule("interleaved", 2, 1)),
            "tick    0                   5                   10\n"
            "rank 0  0F0 .   2F0 .   .   .   2B0---- .   .   0B0----\n"
            "rank 1  .   1F0 .   3F0 3B0---- .   .   1B0---- .   .\n");
}

TEST(PipelinePicture, LabelsOfTwoDigitsLineUp) {
  const std::string picture = text(make_schedule("gpipe", 1, 11));
  EXPECT_THAT(picture, HasSubstr("rank 0  F0  F1  F2  F3  F4  F5  F6  F7  F8  F9  F10 B0----- B1-----"));
}

TEST(PipelinePicture, ATickIsWhatAllActionsAreMultiplesOf) {
  const auto tick = [](const Times& times) { return tick_of(verify(make_schedule("zb-h1", 2, 2), times).prediction); };
  EXPECT_DOUBLE_EQ(tick({1, 1, 1}), 1);
  EXPECT_DOUBLE_EQ(tick({10, 12, 8}), 2);
  EXPECT_DOUBLE_EQ(tick({10, 20, 15}), 5);
  EXPECT_DOUBLE_EQ(tick({0.1, 0.2, 0.3}), 0.1);
  EXPECT_DOUBLE_EQ(tick({3.14, 2.71, 1.41}), 1.41);  // none: about right
  EXPECT_EQ(text(make_schedule("gpipe", 2, 1), {4, 3, 2}),
            "tick    0         10\n"
            "rank 0  F0- .........B0--\n"
            "rank 1  ....F0- B0-- .....\n");
}

TEST(PipelinePicture, GoesOnBelowWhereTheTerminalEnds) {
  EXPECT_EQ(text(make_schedule("1f1b", 2, 2), {}, {false, 24}),
            "tick    0\n"
            "rank 0  F0 F1 .  .  B0-\n"
            "rank 1  .  F0 B0--- F1\n"
            "\n"
            "tick    5\n"
            "rank 0  -- .  B1---\n"
            "rank 1  B1--- .  .\n");
  EXPECT_EQ(count(text(make_schedule("gpipe", 2, 1), {}, {false, 1}), "rank 0"), 6U);  // one tick a line, not none
}

TEST(PipelinePicture, ColoursOnlyWhenAsked) {
  const Schedule schedule = make_schedule("zb-h1", 2, 2);
  EXPECT_THAT(text(schedule), Not(HasSubstr("\x1b")));
  const std::string coloured = text(schedule, {}, {true, 0});
  EXPECT_EQ(count(coloured, "\x1b[48;5;"), 12U);
  EXPECT_EQ(count(coloured, "\x1b[0m"), 12U);
  EXPECT_THAT(coloured, HasSubstr(".  "));  // idle has none
}

TEST(PipelinePicture, WhatNobodyCouldReadIsNotDrawn) {
  EXPECT_EQ(text(make_schedule("naive", 600, 1)), "(not drawn: 600 ranks for 1800 ticks)\n");
}

TEST(PipelinePicture, SvgHasABoxForEveryAction) {
  const Schedule schedule = make_schedule("interleaved", 2, 4);
  const std::string svg = svg_of(schedule, verify(schedule).prediction, "a < b & c");
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_EQ(count(svg, "fill-opacity"), 2U * 2 * 2 * 4);
  for (const char* label : {">0F0<", ">3B3<", ">rank 1<", "F forward", "B backward", ">idle<", "11.1%", ">27<"})
    EXPECT_THAT(svg, HasSubstr(label));
  EXPECT_THAT(svg, Not(HasSubstr("gradients of the weights")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace lockstep::pipeline
