#include "lockstep/launch/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int exited(int code) { return code << 8; }
constexpr int killed(int signal) { return signal; }

RankEnd end(Rank rank, int status, int round, int signalled = 0) {
  RankEnd result;
  result.rank = rank;
  result.pid = 4700 + rank;
  result.status = status;
  result.round = round;
  result.signalled = signalled;
  return result;
}

TEST(Report, DescribesAStatus) {
  EXPECT_EQ(describe_status(exited(0)), "exit code 0");
  EXPECT_EQ(describe_status(exited(3)), "exit code 3");
  EXPECT_EQ(describe_status(killed(SIGKILL)), "signal 9 (Killed)");
  EXPECT_EQ(describe_status(killed(SIGSEGV) | 0x80), "signal 11 (Segmentation fault)");
  EXPECT_EQ(code_of(exited(3)), 3);
  EXPECT_EQ(code_of(killed(SIGKILL)), 137);
}

TEST(Report, NamesRanks) {
  EXPECT_EQ(name_ranks(std::vector{3}), "rank 3");
  EXPECT_EQ(name_ranks(std::vector{0, 1}), "ranks 0-1");
  EXPECT_EQ(name_ranks(std::vector{0, 2, 3, 4, 9}), "ranks 0, 2-4, 9");
}

TEST(FirstFailure, IsTheEarliestThatFailedByItself) {
  const auto first = [](const std::vector<RankEnd>& ends) {
    const RankEnd* failure = first_failure(ends);
    return failure == nullptr ? -1 : failure->rank;
  };
  EXPECT_EQ(first({end(0, 0, 1), end(1, 0, 2)}), -1);
  EXPECT_EQ(first({end(0, exited(1), 3), end(1, exited(5), 2), end(2, 0, 1)}), 1);
  EXPECT_EQ(first({end(0, exited(1), 2), end(1, killed(9), 2)}), 1) << "found at the same time: the signal";
  EXPECT_EQ(first({end(0, killed(15), 1, SIGTERM), end(1, exited(7), 2)}), 1) << "we ended rank 0";
  EXPECT_EQ(first({end(0, killed(15), 1, SIGTERM)}), -1);
}

TEST(FirstFailure, IsNotAVictim) {
  auto ends = std::vector{end(0, exited(1), 1), end(1, exited(3), 2), end(2, killed(SIGABRT), 1)};
  ends[0].waiting = "recv from rank 1";
  ends[2].waiting = "recv from rank 1";
  EXPECT_EQ(first_failure(ends)->rank, 1) << "its process took longer to end than those of its victims";
  ends.erase(ends.begin() + 1);
  EXPECT_EQ(first_failure(ends)->rank, 2) << "with victims alone, the first of them";
}

TEST(FirstCause, MayHaveLeftWithoutAnError) {
  auto ends = std::vector{end(0, exited(1), 7), end(1, exited(0), 6), end(2, exited(0), 3), end(3, exited(1), 8)};
  EXPECT_EQ(first_cause(ends)->rank, 0) << "it failed by itself";
  ends[0].waiting = ends[3].waiting = "recv of 8 bytes from rank 1";
  EXPECT_EQ(first_failure(ends)->rank, 0);
  EXPECT_EQ(first_cause(ends)->rank, 1);
  EXPECT_EQ(failure_report({"vm", ends, "", false}),
            "lockstep run: FAILED\n"
            "  first cause  rank 1 (host vm, pid 4701) left early (exit code 0)\n"
            "  others       rank 0 was waiting: recv of 8 bytes from rank 1\n"
            "               rank 2 had left with exit code 0\n"
            "               rank 3 was waiting: recv of 8 bytes from rank 1\n"
            "  exit code    1");
  ends[0].status = ends[3].status = exited(4);
  EXPECT_EQ(first_cause(ends)->rank, 0) << "a timeout is about one who is still there";
  ends[0].status = ends[3].status = exited(1);
  ends[1].round = 9;
  ends[2].round = 9;
  EXPECT_EQ(first_cause(ends)->rank, 0) << "they left after it";
}

TEST(Report, TellsTheStory) {
  auto ends = std::vector{end(0, exited(1), 5),           end(1, exited(1), 6), end(2, killed(9), 4),
                          end(3, killed(15), 7, SIGTERM), end(4, exited(0), 2), end(5, killed(9), 8, SIGKILL)};
  ends[0].waiting = "recv of 8 bytes from rank 2, tag 0";
  ends[2].last_words = {"step 41", "step 42\t\x1b[31mred"};
  ends[5].stopped = true;
  EXPECT_EQ(failure_report({"vm", ends, "logs", false}),
            "lockstep run: FAILED\n"
            "  first cause  rank 2 (host vm, pid 4702) was ended by signal 9 (Killed)\n"
            "  last words   step 41\n"
            "               step 42 ?[31mred\n"
            "  others       rank 0 was waiting: recv of 8 bytes from rank 2, tag 0\n"
            "               rank 1 ended with exit code 1\n"
            "               rank 3 was ended by the launcher (SIGTERM)\n"
            "               rank 4 had left with exit code 0\n"
            "               rank 5 was stopped, and ended by the launcher (SIGKILL)\n"
            "  logs         logs\n"
            "  exit code    137");
}

TEST(Report, AnErrorOfItsOwnStandsInPlaceOfLastWords) {
  auto ends = std::vector{end(0, exited(1), 1)};
  ends[0].error = "bad batch\nat step 3\n";
  ends[0].last_words = {"noise"};
  EXPECT_EQ(failure_report({"vm", ends, "", false}),
            "lockstep run: FAILED\n"
            "  first cause  rank 0 (host vm, pid 4700) ended with exit code 1\n"
            "  error        bad batch\n"
            "               at step 3\n"
            "  exit code    1");
}

TEST(Report, ATimeoutSaysWhoWasLate) {
  auto ends = std::vector{end(0, exited(4), 1), end(1, killed(15), 2, SIGTERM)};
  ends[0].waiting = "all_reduce 12: rank 1 is late";
  ends[1].stopped = true;
  EXPECT_THAT(failure_report({"vm", ends, "", false}),
              HasSubstr("first cause  rank 1 (host vm, pid 4701) was stopped, and ended by the launcher (SIGTERM)\n"
                        "  others       rank 0 timed out: all_reduce 12: rank 1 is late\n"
                        "  exit code    4"));
  ends[1].stopped = false;
  EXPECT_THAT(failure_report({"vm", ends, "", false}),
              HasSubstr("first cause  rank 0 (host vm, pid 4700) ended with exit code 4\n"
                        "  waiting      all_reduce 12: rank 1 is late\n"
                        "  others       rank 1 was ended by the launcher (SIGTERM)\n"));
}

TEST(Report, FoldsEqualLinesOfManyRanks) {
  std::vector<RankEnd> ends;
  for (Rank rank = 0; rank < 16; ++rank) ends.push_back(end(rank, killed(15), 3, SIGTERM));
  ends[2] = end(2, exited(3), 1);
  ends[5] = end(5, exited(1), 2);
  EXPECT_THAT(failure_report({"vm", ends, "", false}),
              HasSubstr("  others       ranks 0-1, 3-4, 6-15 were ended by the launcher (SIGTERM)\n"
                        "               rank 5 ended with exit code 1\n"));
}

TEST(Report, StaysShortWithManyDifferentRanks) {
  std::vector<RankEnd> ends;
  for (Rank rank = 0; rank < 100; ++rank) {
    ends.push_back(end(rank, exited(1), 2));
    if (rank > 0) ends.back().waiting = "something else: " + std::to_string(rank);
  }
  const std::string text = failure_report({"vm", ends, "", false});
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 25);
  EXPECT_THAT(text, HasSubstr("... and 83 more ranks"));
}

TEST(Report, IsRedOnATerminal) {
  const auto ends = std::vector{end(0, exited(1), 1)};
  EXPECT_THAT(failure_report({"vm", ends, "", true}), HasSubstr("\x1b[1;31mlockstep run: FAILED\x1b[0m"));
  EXPECT_THAT(failure_report({"vm", ends, "", false}), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace lockstep::launch
