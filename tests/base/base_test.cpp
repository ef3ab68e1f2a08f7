#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/base/clock.h"
#include "lockstep/base/cpu.h"
#include "lockstep/base/environment.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

// A program that tells the two apart must be able to, however many layers have added context to the error.
TEST(Errors, AnErrorWithContextKeepsItsKindAndItsPeer) {
  EXPECT_THROW(std::rethrow_exception(with_context(PeerUnreachable(3, "a"), "b")), PeerUnreachable);
  try {
    std::rethrow_exception(with_context(PeerDied(3, "a"), "b"));
  } catch (const PeerUnreachable&) {
    FAIL() << "a death is no cut network";
  } catch (const PeerDied& died) {
    EXPECT_EQ(died.peer(), 3);
    EXPECT_STREQ(died.what(), "b: a");
  }
}

TEST(Errors, NothingIsLostWhenContextIsAdded) {
  const Error failed("wrong numbers", "mend them", kExitVerification);
  try {
    std::rethrow_exception(with_context(failed, "step 3"));
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), kExitVerification);
    EXPECT_EQ(error.facts().context, std::vector<std::string>{"step 3"});
    EXPECT_EQ(error.facts().message, "wrong numbers");
    EXPECT_EQ(error.facts().hint, "mend them");
    EXPECT_STREQ(error.what(), "step 3: wrong numbers; try: mend them");
  }
  try {
    std::rethrow_exception(with_context(SystemError(ENOENT, "cannot open x"), "loading"));
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code(), ENOENT);
    EXPECT_EQ(error.kind(), Error::Kind::system);
  }
  EXPECT_THROW(std::rethrow_exception(with_context(TimedOut("late"), "x")), TimedOut);
  EXPECT_THROW(std::rethrow_exception(with_context(UsageError("bad"), "x")), UsageError);
  EXPECT_THROW(std::rethrow_exception(with_context(Mismatch("two"), "x")), Mismatch);
}

// The text is made from the facts, in the same order for every error.
TEST(Errors, TheTextIsMadeFromTheFacts) {
  ErrorFacts facts{.context = {"outer", "inner"},
                   .rank = 1,
                   .operation = "recv of 8 bytes from rank 2",
                   .tag = 7,
                   .message_number = 3,
                   .message = "rank 4 died (signal 9)",
                   .peer = 4,
                   .notes = {"a dump is in x"},
                   .hint = "look"};
  EXPECT_STREQ(PeerDied(facts).what(),
               "outer: inner: rank 1: stopped because rank 4 died (signal 9); it was waiting in recv of 8 bytes from "
               "rank 2, tag 7 (message 3); a dump is in x; try: look");
  facts = {.rank = 1, .operation = "all_reduce 6", .message = "rank 4 died", .peer = 4};
  EXPECT_STREQ(PeerDied(facts).what(), "rank 1: stopped in all_reduce 6: rank 4 died");
  facts.message = "timed out after 3 s";
  EXPECT_STREQ(TimedOut(facts).what(), "rank 1: all_reduce 6 timed out after 3 s");
  facts.message = "root 9 is not a rank";
  EXPECT_STREQ(UsageError(facts).what(), "rank 1: all_reduce 6: root 9 is not a rank");
}

TEST(Environment, NumbersHaveARange) {
  EXPECT_EQ(parse_int("x", "42", 0, 100), 42);
  for (const char* bad : {"", "4x", "x4", "101", "-1", "99999999999999999999", "4 "})
    EXPECT_THROW(parse_int("x", bad, 0, 100), UsageError) << bad;
}

TEST(Environment, AnErrorNamesTheVariableAndTheValue) {
  setenv("LOCKSTEP_TEST_NUMBER", "seven", 1);
  try {
    env_int("LOCKSTEP_TEST_NUMBER", 1, 9);
    FAIL() << "a word passed for a number";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "LOCKSTEP_TEST_NUMBER is 'seven', not a whole number from 1 to 9");
    EXPECT_EQ(error.exit_code(), kExitUsage);
  }
}

TEST(Environment, BytesTakeSuffixesOf1024) {
  EXPECT_EQ(parse_bytes("x", "7"), 7U);
  EXPECT_EQ(parse_bytes("x", "64K"), 64U << 10);
  EXPECT_EQ(parse_bytes("x", "3m"), 3U << 20);
  EXPECT_EQ(parse_bytes("x", "5G"), std::size_t{5} << 30);
  for (const char* bad : {"", "K", "1T", "-1K", "9999999999G"}) EXPECT_THROW(parse_bytes("x", bad), UsageError) << bad;
}

TEST(Environment, SecondsAndChoices) {
  setenv("LOCKSTEP_TEST_SECONDS", "0.25", 1);
  EXPECT_EQ(env_seconds("LOCKSTEP_TEST_SECONDS", 1s), 250ms);
  EXPECT_EQ(env_seconds("LOCKSTEP_TEST_UNSET", 3s), 3s);
  for (const char* bad : {"0", "-1", "soon", "1s", "nan"}) {
    setenv("LOCKSTEP_TEST_SECONDS", bad, 1);
    EXPECT_THROW(env_seconds("LOCKSTEP_TEST_SECONDS", 1s), UsageError) << bad;
  }
  setenv("LOCKSTEP_TEST_CHOICE", "b", 1);
  EXPECT_EQ(env_choice("LOCKSTEP_TEST_CHOICE", {"a", "b"}), "b");
  EXPECT_THROW(env_choice("LOCKSTEP_TEST_CHOICE", {"a", "c"}), UsageError);
  setenv("LOCKSTEP_TEST_CHOICE", "", 1);
  EXPECT_EQ(env_choice("LOCKSTEP_TEST_CHOICE", {"a", "b"}), "a");
}

TEST(Clock, ADeadlinePassesAndIsNeverNegative) {
  const Deadline past = Deadline::in(-1s);
  EXPECT_TRUE(past.passed());
  EXPECT_EQ(past.left(), Duration::zero());
  EXPECT_EQ(past.poll_ms(), 0);
  const Deadline later = Deadline::in(10s);
  EXPECT_FALSE(later.passed());
  EXPECT_EQ(later.poll_ms(50ms), 50);
  EXPECT_GT(later.poll_ms(), 9000);
  EXPECT_LE(later.sooner(1s).left(), 1s);
  EXPECT_FALSE(Deadline::in(Duration::max()).passed());  // no overflow
}

TEST(Errors, CarryTheHintAndTheSystemsWord) {
  EXPECT_STREQ(Error("it broke", "mend it").what(), "it broke; try: mend it");
  EXPECT_STREQ(SystemError(ENOENT, "cannot open x").what(), "cannot open x: No such file or directory");
  EXPECT_EQ(TimedOut("late").exit_code(), 4);
  EXPECT_EQ(PeerDied(3, "gone").peer(), 3);
  EXPECT_EQ(describe_bytes(8), "8 bytes");
  EXPECT_EQ(describe_bytes(4 << 20), "4.0 MiB (4194304 bytes)");
}

TEST(Environment, AVariableThatIsNearlyOursIsRefused) {
  EXPECT_NO_THROW(check_variables());
  ::setenv("LOCKSTEP_TRASPORT", "tcp", 1);
  try {
    check_variables();
    ADD_FAILURE() << "it was accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "the variable LOCKSTEP_TRASPORT is set, and Lockstep has none of that name; try: LOCKSTEP_TRANSPORT");
  }
  ::unsetenv("LOCKSTEP_TRASPORT");
  ::setenv("LOCKSTEP_EXPERIMENT_OF_MINE", "1", 1);  // a program's own
  EXPECT_NO_THROW(check_variables());
  ::unsetenv("LOCKSTEP_EXPERIMENT_OF_MINE");
}

TEST(Errors, BacktracesOfLibtorchAreCutOff) {
  EXPECT_EQ(without_backtrace(
                "sizes differ: 3 and 4\nException raised from add at x.cpp:12 (most recent call first):\nframe #0: a"),
            "sizes differ: 3 and 4");
  EXPECT_EQ(without_backtrace("two\nlines"), "two\nlines");
}

TEST(Cpu, RanksShareTheCores) {
  EXPECT_GE(allowed_cores(), 1);
  EXPECT_EQ(threads_per_rank(1), allowed_cores());
  EXPECT_EQ(threads_per_rank(1000), 1);
}

}  // namespace
}  // namespace lockstep
