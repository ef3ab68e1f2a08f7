#include "lockstep/parallel/pipeline/schedule/csv.h"

#include <gmock/gmock.h>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/schedule/lower.h"
#include "lockstep/parallel/pipeline/schedule/verify.h"

namespace lockstep::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PipelineCsv, ComesBackAsItWas) {
  for (const std::string& name : schedule_names())
    for (const int ranks : {1, 3, 4})
      for (const int microbatches : {1, 4, 7}) {
        const Schedule schedule = make_schedule(name, ranks, microbatches);
        EXPECT_EQ(from_csv(to_csv(schedule), name), schedule) << name << ranks << microbatches;
        const Schedule lowered = lower(schedule);
        EXPECT_EQ(from_csv(to_csv(lowered), name), lowered) << name << ranks << microbatches;
      }
}

TEST(PipelineCsv, EmptyCellsBlanksAndOtherLineEndsAreAllowed) {
  const Schedule plain = from_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "mine");
  EXPECT_EQ(from_csv("0F0,0F1,,0B0,0B1,\n,1F0,1B0,1F1,1B1", "mine"), plain);
  EXPECT_EQ(from_csv(" 0F0 ,\t0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n\r\n\n", "mine"), plain);
  EXPECT_EQ(plain.name, "mine");
  EXPECT_EQ(plain.stages, 2);
  EXPECT_EQ(plain.microbatches, 2);
}

TEST(PipelineCsv, StagesMayLieAnyhow) {
  // There and back: rank 0 has the first stage and the last.
  const Schedule schedule = from_csv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "v");
  EXPECT_THAT(schedule.rank_of_stage, ElementsAre(0, 1, 1, 0));
  EXPECT_EQ(examine(schedule).problem, "");
}

TEST(PipelineCsv, PairsThatOverlapInPyTorchComeOneAfterTheOther) {
  const Schedule pairs = from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,( 1F1 ; 1B1 )OVERLAP_F_B\n", "pairs");
  EXPECT_EQ(pairs, from_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "pairs"));
  EXPECT_EQ(examine(pairs).problem, "");
}

TEST(PipelineCsv, ActionsOfFsdpAreLeftOutWithANote) {
  const Schedule sharded =
      from_csv("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n", "sharded");
  EXPECT_THAT(sharded.actions[0], ElementsAre(parse_action("0F0"), parse_action("0B0")));
  EXPECT_EQ(sharded.note, "left out 5 actions of FSDP (UNSHARD, RESHARD, REDUCE_GRAD): stages are not sharded here");
  EXPECT_EQ(from_csv("0F0,0B0\n", "plain").note, "");
}

TEST(PipelineCsv, AnActionThatStrayedIsFoundByTheVerifier) {
  const Schedule schedule = from_csv("0F0,0F1,0B0\n1F0,1B0,1F1,1B1,0B1\n", "strayed");
  EXPECT_THAT(schedule.rank_of_stage, ElementsAre(0, 1));
  EXPECT_EQ(examine(schedule).problem, "rank 1, step 4: 0B1 is on the wrong rank: stage 0 is on rank 0");
}

std::string refusal(const std::string& text) {
  try {
    from_csv(text, "mine");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "took it";
}

TEST(PipelineCsv, ErrorsNameLineAndColumn) {
  EXPECT_THAT(refusal("0F0,0B0\n1F0,,1X0\n"), HasSubstr("line 2, column 3: '1X0' is not an action"));
  EXPECT_THAT(refusal("rank 0,0F0"), HasSubstr("line 1, column 1: 'rank 0' is not an action"));
  EXPECT_THAT(refusal("0F0,(0F1;0X0)OVERLAP_F_B"), HasSubstr("line 1, column 2: '0X0' is not an action"));
  EXPECT_THAT(refusal("UNSHARD"), HasSubstr("line 1, column 1: 'UNSHARD' is not an action"));
  EXPECT_THAT(refusal("0UNSHARD\n"), HasSubstr("line 1 has no action"));
  EXPECT_THAT(refusal("0F0;0B0"), HasSubstr("line 1, column 1: '0F0;0B0'"));
  EXPECT_THAT(refusal("0F0,0B0\n\n1F0,1B0\n"), HasSubstr("line 2 has no action, so rank 1 would do nothing"));
  EXPECT_THAT(refusal(""), HasSubstr("no action in it"));
  EXPECT_THAT(refusal("\n \n"), HasSubstr("no action in it"));
  EXPECT_THAT(refusal("0F0,0B0\n2F0,2B0\n"), HasSubstr("stage 1 is on no rank, but there is a stage 2"));
}

TEST(PipelineCsv, LargeNumbersTakeNoLargeMemory) {
  const Schedule schedule = from_csv("0F999999,0B999999\n", "far");
  EXPECT_EQ(schedule.microbatches, 1'000'000);
  EXPECT_THAT(examine(schedule).problem, HasSubstr("0F0 is missing"));
  EXPECT_THAT(refusal("999999F0"), HasSubstr("stage 0 is on no rank"));
}

TEST(PipelineCsv, AByteOrderMarkIsNoAction) {
  EXPECT_EQ(from_csv("\xEF\xBB\xBF"
                     "0F0,0B0\n",
                     "own")
                .actions[0]
                .size(),
            2U);
}

TEST(PipelineCsv, WhatStandsInAFileIsShownHarmlessly) {
  EXPECT_THAT([] { from_csv("0F0,\x1b[31m\x07\n", "own"); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(testing::HasSubstr("line 1, column 2"),
                                                                testing::HasSubstr("?[31m?"),
                                                                testing::Not(testing::HasSubstr("\x1b")))));
}

}  // namespace
}  // namespace lockstep::pipeline
