// Lists broken in every way that we know, each with the words in which it is refused.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/schedule/lower.h"
#include "lockstep/parallel/pipeline/schedule/verify.h"

namespace lockstep::pipeline {
namespace {

using testing::HasSubstr;

using List = std::vector<Action>;

List::iterator find(List& list, const char* action) {
  const auto place = std::find(list.begin(), list.end(), parse_action(action));
  EXPECT_NE(place, list.end()) << action;
  return place;
}

void swap(List& list, const char* a, const char* b) { std::iter_swap(find(list, a), find(list, b)); }
void drop(List& list, const char* action) { list.erase(find(list, action)); }
void move_before(List& list, const char* action, const char* other) {
  drop(list, action);
  list.insert(find(list, other), parse_action(action));
}

struct Broken {
  const char* name;
  std::function<void(Schedule&)> harm;
  const char* problem;
};

void expect_all_refused(const Schedule& good, const std::vector<Broken>& list) {
  ASSERT_EQ(examine(good).problem, "");
  for (const Broken& broken : list) {
    Schedule schedule = good;
    broken.harm(schedule);
    const Verdict verdict = examine(schedule);
    EXPECT_EQ(verdict.problem, broken.problem) << broken.name;
    EXPECT_THROW(verify(schedule), UsageError) << broken.name;
  }
}

TEST(PipelineFaults, OfComputation) {
  // rank 0: 0F0 0F1 0B0 0F2 0B1 0B2        rank 1: 1F0 1B0 1F1 1B1 1F2 1B2
  expect_all_refused(
      make_schedule("1f1b", 2, 3),
      {
          {"a backward before its forward", [](Schedule& s) { swap(s.actions[1], "1F1", "1B1"); },
           "rank 1, step 2: 1B1 comes before 1F1, which is at step 3"},
          {"a forward is missing", [](Schedule& s) { drop(s.actions[0], "0F1"); },
           "0F1 is missing: stage 0 is on rank 0, and needs it for microbatch 1 of 3"},
          {"a backward is missing", [](Schedule& s) { drop(s.actions[1], "1B2"); },
           "1B2 is missing: stage 1 is on rank 1, and needs it for microbatch 2 of 3"},
          {"twice", [](Schedule& s) { s.actions[0].push_back(parse_action("0B0")); },
           "rank 0, step 6: 0B0 is there twice: also at step 2"},
          {"on the wrong rank",
           [](Schedule& s) {
             drop(s.actions[0], "0F2");
             s.actions[1].push_back(parse_action("0F2"));
           },
           "rank 1, step 6: 0F2 is on the wrong rank: stage 0 is on rank 0"},
          {"a stage that is not there", [](Schedule& s) { s.actions[0].push_back(parse_action("2F0")); },
           "rank 0, step 6: 2F0 is of a stage that is not there: stages are 0 to 1"},
          {"a microbatch that is not there", [](Schedule& s) { s.actions[0].push_back(parse_action("0F3")); },
           "rank 0, step 6: 0F3 is of a microbatch that is not there: they are 0 to 2"},
          {"half a backward", [](Schedule& s) { *find(s.actions[0], "0B1") = parse_action("0I1"); },
           "0W1 is missing: stage 0 is on rank 0, and needs it for microbatch 1 of 3"},
          {"the other half", [](Schedule& s) { *find(s.actions[0], "0B1") = parse_action("0W1"); },
           "0I1 is missing: stage 0 is on rank 0, and needs it for microbatch 1 of 3"},
          {"backward in whole and in part", [](Schedule& s) { s.actions[0].push_back(parse_action("0W1")); },
           "rank 0, step 6: 0W1 does again what 0B1 does: a backward is B, or I and W"},
          {"W before I",
           [](Schedule& s) {
             *find(s.actions[0], "0B1") = parse_action("0W1");
             s.actions[0].push_back(parse_action("0I1"));
           },
           "rank 0, step 4: 0W1 comes before 0I1, which is at step 6"},
          {"a list too few", [](Schedule& s) { s.actions.pop_back(); }, "there are 1 lists of actions for 2 ranks"},
          {"a stage without a rank", [](Schedule& s) { s.rank_of_stage.pop_back(); }, "1 stages have a rank, of 2"},
          {"a stage on no rank", [](Schedule& s) { s.rank_of_stage[1] = 2; }, "stage 1 is on rank 2, of 2 ranks"},
          {"nothing", [](Schedule& s) { s.microbatches = 0; },
           "2 stages, 2 ranks and 0 microbatches: a schedule has at least one of each"},
      });
}

TEST(PipelineFaults, BetweenStagesOfOneRank) {
  expect_all_refused(make_schedule("interleaved", 1, 2, 2),
                     {{"forwards", [](Schedule& s) { swap(s.actions[0], "0F0", "1F0"); },
                       "rank 0, step 0: 1F0 comes before 0F0, which is at step 1"},
                      {"backwards", [](Schedule& s) { swap(s.actions[0], "0B0", "1B0"); },
                       "rank 0, step 2: 0B0 comes before 1B0, which is at step 4"}});
}

TEST(PipelineFaults, OfMessages) {
  // rank 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1
  // rank 1: 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1
  expect_all_refused(
      lower(make_schedule("1f1b", 2, 2)),
      {
          {"a receive is missing", [](Schedule& s) { drop(s.actions[1], "1RECV_F1"); },
           "rank 0, step 3: 0SEND_F1 is never received: 1RECV_F1 is missing on rank 1"},
          {"a send is missing", [](Schedule& s) { drop(s.actions[0], "0SEND_F1"); },
           "rank 1, step 4: 1RECV_F1 waits for ever: 0SEND_F1 is missing on rank 0"},
          {"both are missing",
           [](Schedule& s) {
             drop(s.actions[0], "0SEND_F1");
             drop(s.actions[1], "1RECV_F1");
           },
           "rank 1, step 4: 1F1 needs 1RECV_F1, which is missing"},
          {"used before it is received", [](Schedule& s) { swap(s.actions[0], "0RECV_B0", "0B0"); },
           "rank 0, step 4: 0B0 comes before 0RECV_B0, which is at step 5"},
          {"sent before it is made", [](Schedule& s) { swap(s.actions[1], "1B0", "1SEND_B0"); },
           "rank 1, step 2: 1SEND_B0 comes before 1B0, which is at step 3"},
          {"an activation sent before it is made", [](Schedule& s) { swap(s.actions[0], "0F1", "0SEND_F1"); },
           "rank 0, step 2: 0SEND_F1 comes before 0F1, which is at step 3"},
          {"sent twice", [](Schedule& s) { s.actions[0].push_back(parse_action("0SEND_F0")); },
           "rank 0, step 8: 0SEND_F0 is there twice: also at step 1"},
          {"sent by the last stage", [](Schedule& s) { s.actions[1].push_back(parse_action("1SEND_F0")); },
           "rank 1, step 8: 1SEND_F0 has no other end: there is no stage 2"},
          {"received by the first", [](Schedule& s) { s.actions[0].push_back(parse_action("0RECV_F0")); },
           "rank 0, step 8: 0RECV_F0 has no other end: there is no stage -1"},
          {"both need something before they send",
           [](Schedule& s) {
             drop(s.actions[0], "0SEND_F1");
             s.actions[0].push_back(parse_action("0SEND_F1"));
           },
           "deadlock: rank 0 at step 5 (0RECV_B1) waits for 1SEND_B1, step 7 of rank 1; rank 1 at step 4 (1RECV_F1) "
           "waits for 0SEND_F1, step 7 of rank 0"},
      });
}

// A receive that comes early is a post, and no rank waits there.
TEST(PipelineFaults, AnEarlyReceiveIsNone) {
  Schedule schedule = lower(make_schedule("1f1b", 2, 2));
  move_before(schedule.actions[0], "0RECV_B1", "0SEND_F1");
  EXPECT_EQ(examine(schedule).problem, "");
}

TEST(PipelineFaults, AMessageWithinARankIsNotNeeded) {
  Schedule schedule = lower(make_schedule("interleaved", 1, 1, 2));
  EXPECT_FALSE(is_lowered(schedule));
  schedule.actions[0].insert(schedule.actions[0].begin() + 1, parse_action("0SEND_F0"));
  EXPECT_EQ(examine(schedule).problem, "rank 0, step 1: 0SEND_F0 is not needed: stage 1 is on the same rank");
}

TEST(PipelineFaults, AnOrderThatDeadlocksWithAnySendIsShownAsACycle) {
  // Rank 0 wants the backward of 0 before it does the forward of 1, and rank 1 starts with 1.
  Schedule schedule = make_schedule("naive", 2, 2);
  auto& list = schedule.actions[1];
  std::rotate(list.begin(), list.begin() + 2, list.end());
  const Verdict verdict = examine(schedule);
  EXPECT_EQ(verdict.problem,
            "deadlock: rank 0 at step 2 (0RECV_B0) waits for 1SEND_B0, step 7 of rank 1; rank 1 at step 0 (1RECV_F1) "
            "waits for 0SEND_F1, step 5 of rank 0");
  ASSERT_EQ(verdict.cycle.size(), 2U);
  EXPECT_EQ(verdict.cycle[0].peer, verdict.cycle[1].rank);
  EXPECT_EQ(verdict.cycle[1].peer, verdict.cycle[0].rank);
  try {
    verify(schedule);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("schedule naive can't run: deadlock: rank 0 at step 2"));
  }
}

// Any one action dropped, doubled or moved to another rank is found, wherever it is.
TEST(PipelineFaults, NoSingleChangeGoesUnnoticed) {
  for (const std::string& name : schedule_names()) {
    const Schedule good = lower(make_schedule(name, 3, 4));
    for (std::size_t rank = 0; rank < good.actions.size(); ++rank)
      for (std::size_t step = 0; step < good.actions[rank].size(); ++step) {
        const auto at = static_cast<std::ptrdiff_t>(step);
        Schedule dropped = good;
        dropped.actions[rank].erase(dropped.actions[rank].begin() + at);
        EXPECT_NE(examine(dropped).problem, "") << name << " without " << to_string(good.actions[rank][step]);
        Schedule doubled = good;
        doubled.actions[rank].insert(doubled.actions[rank].begin() + at, good.actions[rank][step]);
        EXPECT_THAT(examine(doubled).problem, HasSubstr("is there twice"));
        dropped.actions[(rank + 1) % 3].push_back(good.actions[rank][step]);
        EXPECT_THAT(examine(dropped).problem, HasSubstr("is on the wrong rank"));
      }
  }
}

}  // namespace
}  // namespace lockstep::pipeline
