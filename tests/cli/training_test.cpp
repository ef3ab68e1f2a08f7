#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/training/options.h"
#include "lockstep/cli/training/report.h"
#include "lockstep/train/result.h"

namespace lockstep::cli::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

std::string error_of(const Words& words, int world = 0) {
  try {
    static_cast<void>(parse(words, world));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST(TrainOptions, FlagsReachTheConfiguration) {
  const auto options =
      parse(Words{"--strategy", "sharded",           "--ranks",     "3",       "--dim",  "64",     "--batch_per_rank",
                  "4",          "--lr=0.5",          "--optimizer", "adamw",   "--seed", "7",      "--accumulate",
                  "2",          "--flush-denormals", "--json",      "--steps", "9",      "--flat", "--bucket-mb",
                  "0.5"},
            0);
  const train::TrainingConfig& c = options.config;
  EXPECT_EQ(c.strategy, "sharded");
  EXPECT_EQ(c.ranks, 3);
  EXPECT_EQ(c.model.dim, 64);
  EXPECT_EQ(c.batch, 12);
  EXPECT_EQ(c.lr, 0.5);
  EXPECT_EQ(c.optimizer, "adamw");
  EXPECT_EQ(c.seed, 7U);
  EXPECT_EQ(c.accumulate, 2);
  EXPECT_EQ(c.steps, 9);
  EXPECT_EQ(c.bucket_mb, 0.5);
  EXPECT_TRUE(c.flush_denormals && c.flat && options.json);
}

TEST(TrainOptions, ChannelsAreAListOrSeveralWords) {
  EXPECT_THAT(parse(Words{"--model", "cnn", "--channels", "4,8"}, 0).config.model.channels, ElementsAre(4, 8));
  EXPECT_THAT(parse(Words{"--channels", "4", "8", "16", "--model", "cnn"}, 0).config.model.channels,
              ElementsAre(4, 8, 16));
  EXPECT_THAT(error_of({"--channels", "4", "x"}), HasSubstr("--channels is 'x'"));
}

TEST(TrainOptions, ARankTakesTheWorldItIsIn) {
  EXPECT_EQ(parse(Words{}, 5).config.ranks, 5);
  EXPECT_THAT(error_of({"--ranks", "3"}, 2), HasSubstr("--ranks 3, but this is a rank of a world of 2"));
  EXPECT_THAT(error_of({"--strategy", "single"}, 2), HasSubstr("single is one process"));
}

TEST(TrainReport, TableSaysWhereTheTimeWent) {
  train::Result result;
  result.config = train::checked({});
  result.losses = {0.75, 0.25};
  result.step_p50 = 0.010;
  result.phases = {
      .forward = 0.002, .backward = 0.004, .communication = 0.003, .exposed_communication = 0.001, .optimizer = 0.003};
  result.digests = {std::string(64, 'a'), std::string(64, 'a')};
  const std::string text = table(train::document(result));
  EXPECT_THAT(text, HasSubstr("communication  3.000 ms a step, 1.000 ms exposed: overhead 10.0%"));
  EXPECT_THAT(text, HasSubstr("compute        9.000 ms"));
  EXPECT_THAT(text, HasSubstr("0.750000 at first, 0.250000 at last"));
  EXPECT_THAT(text, HasSubstr("the same on all 2 ranks"));
  EXPECT_THAT(text, Not(HasSubstr("accuracy")));
  result.digests[1] = std::string(64, 'b');
  result.accuracies = {0.5};
  EXPECT_THAT(table(train::document(result)), HasSubstr("DIFFER: rank 0 aaaaaaaaaaaaaaaa rank 1 bbbbbbbbbbbbbbbb"));
  EXPECT_THAT(table(train::document(result)), HasSubstr("accuracy       50.00%"));
}

TEST(TrainReport, ExitCodes) {
  train::Result result;
  result.config = train::checked({});
  result.digests = {"a", "b"};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(show(train::document(result), {}), kExitVerification);
  result.digests = {"a", "a"};
  EXPECT_EQ(show(train::document(result), {}), kExitOk);
  EXPECT_EQ(show({{"error", "no"}, {"exit_code", 2}}, {}), kExitUsage);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep train: the ranks ended with different weights\nlockstep train: no\n");
}

}  // namespace
}  // namespace lockstep::cli::training
