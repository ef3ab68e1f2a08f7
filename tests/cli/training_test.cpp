#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/cli/training/options.h"
#include "lockstep/cli/training/report.h"
#include "lockstep/error.h"
#include "lockstep/train/result.h"

namespace lockstep::cli::training {
namespace {

using testing::ContainsRegex;
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
                  "0.5",        "--fused-update"},
            0);
  const train::TrainingConfig& c = options.config;
  EXPECT_EQ(c.strategy, train::StrategyKind::sharded);
  EXPECT_EQ(c.ranks, 3);
  EXPECT_EQ(c.model.dim, 64);
  EXPECT_EQ(c.batch, 12);
  EXPECT_EQ(c.lr, 0.5);
  EXPECT_EQ(c.optimizer, train::OptimizerKind::adamw);
  EXPECT_EQ(c.seed, 7U);
  EXPECT_EQ(c.accumulate, 2);
  EXPECT_EQ(c.steps, 9);
  EXPECT_EQ(c.bucket_mb, 0.5);
  EXPECT_TRUE(c.flush_denormals && c.flat && c.fused_update && options.json);
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

TEST(TrainOptions, FlagsOfAPipeline) {
  const auto options = parse(
      Words{"--strategy", "pipeline", "--ranks", "4", "--stages", "2", "--schedule", "interleaved", "--microbatches",
            "6", "--virtual-stages", "3", "--balance", "parameters", "--recompute", "--bucket-mb", "0.5"},
      0);
  const train::PipelineConfig& p = options.config.pipeline;
  EXPECT_EQ(p.schedule, "interleaved");
  EXPECT_EQ(p.stages, 2);
  EXPECT_EQ(p.microbatches, 6);
  EXPECT_EQ(p.virtual_stages, 3);
  EXPECT_EQ(p.balance, pipeline::Balance::parameters);
  EXPECT_TRUE(p.recompute);
  EXPECT_FALSE(p.emulate.has_value());
  EXPECT_EQ(options.config.replicas(), 2);
}

TEST(TrainOptions, EmulatedTimes) {
  const auto emulate =
      parse(Words{"--strategy", "pipeline", "--emulate-compute", "10ms,250us,1.5s"}, 0).config.pipeline.emulate;
  ASSERT_TRUE(emulate.has_value());
  EXPECT_DOUBLE_EQ(emulate->forward, 0.010);
  EXPECT_DOUBLE_EQ(emulate->input, 250e-6);
  EXPECT_DOUBLE_EQ(emulate->weight, 1.5);
  const auto said = [](const char* times) { return error_of({"--strategy", "pipeline", "--emulate-compute", times}); };
  EXPECT_THAT(said("10ms,10ms"), HasSubstr("--emulate-compute is '10ms,10ms': 2 times, not 3"));
  EXPECT_THAT(said("1ms,1ms,1ms,1ms"), HasSubstr("4 times, not 3; try: --emulate-compute 10ms,10ms,10ms"));
  EXPECT_THAT(said("10,10,10"), HasSubstr("--emulate-compute is '10', which is not a time"));
  EXPECT_THAT(said("1ms,0ms,1ms"), HasSubstr("--emulate-compute is '0ms'"));
}

TEST(TrainOptions, StagesArePartOfTheWorldThatIsThere) {
  EXPECT_EQ(parse(Words{"--strategy", "pipeline"}, 5).config.pipeline.stages, 5);
  EXPECT_EQ(parse(Words{"--strategy", "pipeline", "--stages", "2"}, 6).config.replicas(), 3);
  EXPECT_THAT(error_of({"--strategy", "pipeline", "--stages", "2"}, 3), HasSubstr("3 ranks are no whole number"));
  EXPECT_THAT(error_of({"--strategy", "pipeline", "--stages", "0"}), HasSubstr("--stages is '0'"));
}

TEST(TrainOptions, FlagsOfTheOtherModelAreRefused) {
  const auto error_of = [](const std::vector<std::string>& words) -> std::string {
    try {
      parse(words, 0);
      return "none";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(error_of({"--model", "cnn", "--dim", "64"}), HasSubstr("--dim is a flag of mlp, and --model is cnn"));
  EXPECT_THAT(error_of({"--channels", "8,16"}), HasSubstr("--channels is a flag of cnn, and --model is mlp"));
  EXPECT_EQ(error_of({"-n", "3", "--dim", "64"}), "none");
  EXPECT_THAT(
      error_of({"--model", "cnn", "--heads", "2"}),
      HasSubstr("--heads is a flag of transformer, and --model is cnn; try: without --heads, or --model transformer"));
  EXPECT_THAT(error_of({"--tied"}), HasSubstr("--tied is a flag of transformer, and --model is mlp"));
  EXPECT_THAT(error_of({"--model", "transformer", "--hidden", "64"}), HasSubstr("--hidden is a flag of cnn"));
}

TEST(TrainOptions, FlagsOfATransformer) {
  const train::TrainingConfig c = parse(Words{"--dim", "32", "--model", "transformer", "--depth", "3", "--heads", "8",
                                              "--vocabulary", "1000", "--sequence", "16", "--tied"},
                                        0)
                                      .config;
  EXPECT_EQ(c.model.kind, model::ModelKind::transformer);
  EXPECT_EQ(c.data, data::DataKind::tokens);
  const model::TransformerSizes& t = c.model.transformer;
  EXPECT_THAT((std::vector{t.dim, t.depth, t.heads, t.vocabulary, t.sequence}), ElementsAre(32, 3, 8, 1000, 16));
  EXPECT_TRUE(t.tied);
  EXPECT_EQ(parse(Words{"--model", "transformer"}, 0).config.model.transformer.dim, 64);
  EXPECT_THAT(error_of({"--model", "transformer", "--vocabulary", "0"}), HasSubstr("--vocabulary is '0'"));
}

TEST(TrainReport, TableSaysWhereTheTimeWent) {
  train::Result result;
  result.config = train::checked({});
  result.steps = 2;
  result.losses = {0.75, 0.25};
  result.step_p50 = 0.010;
  result.phases = {
      .forward = 0.002, .backward = 0.004, .communication = 0.003, .exposed_communication = 0.001, .optimizer = 0.003};
  result.digests = {std::string(64, 'a'), std::string(64, 'a')};
  const std::string text = table(train::document(result));
  EXPECT_THAT(text, HasSubstr("communication  3.000 ms per step, 1.000 ms exposed: overhead 10.0%"));
  EXPECT_THAT(text, HasSubstr("compute        9.000 ms"));
  EXPECT_THAT(text, ContainsRegex("\n  other +0\\.000 +0\\.0%\n  in all +10\\.000 +100\\.0%\n"));
  EXPECT_THAT(text, Not(HasSubstr("bubble")));
  EXPECT_THAT(text, HasSubstr("0.750000 at first, 0.250000 at last"));
  EXPECT_THAT(text, HasSubstr("the same on all 2 ranks"));
  EXPECT_THAT(text, Not(HasSubstr("accuracy")));
  result.digests[1] = std::string(64, 'b');
  result.accuracies = {0.5};
  EXPECT_THAT(table(train::document(result)), HasSubstr("DIFFER: rank 0 aaaaaaaaaaaaaaaa rank 1 bbbbbbbbbbbbbbbb"));
  EXPECT_THAT(table(train::document(result)), HasSubstr("accuracy       50.00%"));
}

TEST(TrainReport, OfTokensNamesTheBestLoss) {
  train::Result result;
  train::TrainingConfig config;
  config.model.kind = model::ModelKind::transformer;
  result.config = train::checked(config);
  result.losses = {5.5, 2.5};
  result.digests = {std::string(64, 'a')};
  const auto document = train::document(result);
  EXPECT_EQ(document["model"], "transformer");
  EXPECT_EQ(document["data"], "tokens");
  EXPECT_NEAR(document["best_loss"], 1.1369, 1e-4);
  EXPECT_THAT(table(document), HasSubstr("best loss      1.136917 without learning the batch by heart"));
}

// So many pipelines of two stages.
train::Result of_pipelines(int replicas) {
  train::Result result;
  result.config =
      train::checked({.strategy = train::StrategyKind::pipeline, .ranks = 2 * replicas, .pipeline = {.stages = 2}});
  result.steps = 2;
  result.losses = {0.75, 0.25};
  result.step_p50 = 0.010;
  result.phases = {.forward = 0.002, .backward = 0.004, .optimizer = 0.001, .bubble = 0.0025, .other = 0.0005};
  result.pipeline = train::PipelineResult{.schedule = "gpipe",
                                          .all_stages = 2,
                                          .messages = 32,
                                          .times = {},
                                          .bubble_predicted = 0.125,
                                          .seconds_predicted = 0.009,
                                          .bubble_measured = 0.375,
                                          .seconds_measured = 0.0125,
                                          .peak_activations = {3, 7}};
  for (int i = 0; i < replicas; ++i) {
    result.digests.insert(result.digests.end(), {std::string(64, 'a'), std::string(64, 'b')});
    result.shares.insert(result.shares.end(), {{0.5, 0.125, 0.25, 0.125}, {0.75, 0.25, 0, 0}});
  }
  return result;
}

TEST(TrainReport, OfAPipeline) {
  const std::string text = table(train::document(of_pipelines(1)));
  EXPECT_THAT(text, ContainsRegex("\n  bubble +2\\.500 +25\\.0%\n"));
  EXPECT_THAT(text, ContainsRegex("\ngpipe +predicted +measured\n"));
  EXPECT_THAT(text, ContainsRegex("\n  idle: bubble, messages +12\\.5% +37\\.5%\n"));
  EXPECT_THAT(text, ContainsRegex("\n  forward and backward ms +9\\.000 +12\\.500\n"));
  EXPECT_THAT(text, HasSubstr("7 at most, 32 messages per step"));
  EXPECT_THAT(text, HasSubstr("loss           0.750000 at first, 0.250000 at last, 2 steps"));
  EXPECT_THAT(text, HasSubstr("weights        in 2 parts, one per rank\n"));
  EXPECT_THAT(text, Not(HasSubstr("EMULATED")));
}

TEST(TrainReport, WeightsOfSeveralPipelines) {
  train::Result result = of_pipelines(3);
  EXPECT_THAT(table(train::document(result)), HasSubstr("in 2 parts, each the same in all 3 pipelines\n"));
  result.digests[4] = std::string(64, 'c');
  EXPECT_THAT(table(train::document(result)), HasSubstr("DIFFER: rank 0 aaaaaaaaaaaaaaaa rank 1 bbbbbbbbbbbbbbbb"));
}

TEST(TrainReport, EmulatedComputeIsSaidAndHasNoLoss) {
  train::Result result = of_pipelines(1);
  result.config.pipeline.emulate = pipeline::Times{0.01, 0.01, 0.01};
  const std::string text = table(train::document(result));
  EXPECT_THAT(text, HasSubstr("EMULATED COMPUTE"));
  EXPECT_THAT(text, HasSubstr("bubble"));
  EXPECT_THAT(text, Not(HasSubstr("at first")));
  EXPECT_THAT(text, Not(HasSubstr("weights  ")));
}

TEST(TrainReport, UtilisationIsALineARank) {
  const std::string text = table(train::document(of_pipelines(1)));
  EXPECT_THAT(text, ContainsRegex("\nutilisation +compute +communication +bubble +other\n"));
  EXPECT_THAT(text, ContainsRegex("\n  rank 0 +50\\.0% +12\\.5% +25\\.0% +12\\.5%\n"));
  EXPECT_THAT(text, ContainsRegex("\n  rank 1 +75\\.0% +25\\.0% +0\\.0% +0\\.0%\n"));
  EXPECT_THAT(text, Not(HasSubstr("more ranks")));
  const std::string many = table(train::document(of_pipelines(9)));
  EXPECT_THAT(many, HasSubstr("  rank 15 "));
  EXPECT_THAT(many, Not(HasSubstr("  rank 16 ")));
  EXPECT_THAT(many, HasSubstr("and 2 more ranks: --json"));
}

TEST(TrainReport, MemoryThatWasMeasuredIsShown) {
  train::Result result;
  result.config = train::checked({});
  result.digests = {"a", "a"};
  result.pss_bytes = {200'000'000, 100'000'000};
  result.peak_bytes = {300'000'000, 310'000'000};
  const std::string text = table(train::document(result));
  EXPECT_THAT(text,
              ContainsRegex("\nmemory, MB +its share +peak\n  rank 0 +200\\.0 +300\\.0\n  rank 1 +100\\.0 +310\\.0\n"));
  EXPECT_THAT(text, ContainsRegex("\n  in all +300\\.0\n"));
}

TEST(TrainReport, ALossThatRoseIsSaid) {
  train::Result result;
  result.config = train::checked({});
  result.digests = {"a"};
  for (int i = 0; i < 20; ++i) result.losses.push_back(1 + 0.1 * i);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(show(train::document(result), {}), kExitOk);
  testing::internal::GetCapturedStdout();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              ContainsRegex("diverged: it began at 1.000000, .*; try: a smaller --lr than 0.001\n"));
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
