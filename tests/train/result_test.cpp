#include "lockstep/train/result.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/quantile.h"

namespace lockstep::train {
namespace {

TEST(Result, DocumentHasTheShapeThatScriptsRelyOn) {
  Result result;
  result.config = checked({});
  result.transport = "shm";
  result.steps = 2;
  result.losses = {0.7, 0.6};
  result.step_p50 = 0.004;
  result.phases = {
      .forward = 0.001, .backward = 0.002, .communication = 0.002, .exposed_communication = 0.0005, .other = 0.0005};
  result.digests = {"ab", "ab"};
  const auto d = document(result);
  for (const char* field : {"strategy", "engine", "transport", "ranks", "model", "parameters", "steps", "losses",
                            "step_ms", "phase_ms", "weights_digest"})
    EXPECT_TRUE(d.contains(field)) << field;
  EXPECT_EQ(d["steps"], 2);
  EXPECT_DOUBLE_EQ(d["step_ms"]["p50"], 4);
  EXPECT_DOUBLE_EQ(d["step_ms"]["mean"], 4);
  EXPECT_DOUBLE_EQ(d["phase_ms"]["other"], 0.5);
  EXPECT_FALSE(d["phase_ms"].contains("bubble"));
  EXPECT_DOUBLE_EQ(d["phase_ms"]["exposed_communication"], 0.5);
  EXPECT_DOUBLE_EQ(d["overhead_percent"], 12.5);
  EXPECT_DOUBLE_EQ(d["samples_per_second"], 8000);
  EXPECT_TRUE(d["weights_agree"].get<bool>());
  EXPECT_FALSE(d.contains("accuracy"));
  result.digests[1] = "ac";
  result.accuracies = {0.1, 0.9};
  EXPECT_FALSE(document(result)["weights_agree"].get<bool>());
  EXPECT_DOUBLE_EQ(document(result)["accuracy"], 0.9);
}

// Two pipelines of two stages.
Result of_pipelines() {
  Result result;
  result.config =
      checked({.strategy = StrategyKind::pipeline, .ranks = 4, .pipeline = {.stages = 2, .recompute = true}});
  result.digests = {"a", "b", "a", "b"};
  result.shares = {{0.5, 0.25, 0.25, 0}, {0.75, 0.25, 0, 0}, {1, 0, 0, 0}, {0, 0, 1, 0}};
  result.phases.bubble = 0.003;
  result.pipeline = PipelineResult{.schedule = "1f1b",
                                   .all_stages = 2,
                                   .messages = 16,
                                   .times = {{.forward = 0.001, .input = 0.002, .weight = 0.003}, {}},
                                   .bubble_predicted = 0.25,
                                   .seconds_predicted = 0.004,
                                   .bubble_measured = 0.5,
                                   .seconds_measured = 0.008,
                                   .peak_activations = {2, 1, 2, 1}};
  return result;
}

TEST(Result, DocumentOfPipelines) {
  const auto d = document(of_pipelines());
  const auto& p = d["pipeline"];
  EXPECT_EQ(p["schedule"], "1f1b");
  EXPECT_EQ(p["stages"], 2);
  EXPECT_EQ(p["all_stages"], 2);
  EXPECT_EQ(p["virtual_stages"], 1);
  EXPECT_EQ(p["microbatches"], 8);
  EXPECT_EQ(p["replicas"], 2);
  EXPECT_EQ(p["balance"], "count");
  EXPECT_EQ(p["recompute"], true);
  EXPECT_EQ(p["emulated"], false);
  EXPECT_EQ(p["messages"], 16);
  EXPECT_DOUBLE_EQ(p["bubble_predicted"], 0.25);
  EXPECT_DOUBLE_EQ(p["bubble_measured"], 0.5);
  EXPECT_DOUBLE_EQ(p["predicted_ms"], 4);
  EXPECT_DOUBLE_EQ(p["measured_ms"], 8);
  EXPECT_EQ(p["peak_activations"], (std::vector<int>{2, 1, 2, 1}));
  EXPECT_EQ(p["times_ms"].size(), 2U);
  EXPECT_DOUBLE_EQ(p["times_ms"][0]["W"], 3);
  EXPECT_DOUBLE_EQ(d["phase_ms"]["bubble"], 3);
  Result emulated = of_pipelines();
  emulated.config.pipeline.emulate = pipeline::Times{1, 1, 1};
  EXPECT_EQ(document(emulated)["pipeline"]["emulated"], true);
  emulated.pipeline.reset();
  EXPECT_FALSE(document(emulated).contains("pipeline"));
}

TEST(Result, UtilisationIsOneEntryARank) {
  const auto d = document(of_pipelines());
  ASSERT_EQ(d["utilisation"].size(), 4U);
  EXPECT_EQ(d["utilisation"][1]["rank"], 1);
  EXPECT_DOUBLE_EQ(d["utilisation"][1]["compute"], 0.75);
  EXPECT_DOUBLE_EQ(d["utilisation"][1]["communication"], 0.25);
  EXPECT_DOUBLE_EQ(d["utilisation"][3]["bubble"], 1);
  Result without = of_pipelines();
  without.pipeline.reset();
  EXPECT_FALSE(document(without)["utilisation"][3].contains("bubble"));
}

// `count` losses from `from` to `to`, in equal steps.
std::vector<double> line(double from, double to, int count) {
  std::vector<double> losses;
  for (int i = 0; i < count; ++i) losses.push_back(from + (to - from) * i / (count - 1));
  return losses;
}

std::vector<double> operator+(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Result, LossesThatWentWrongAreSaid) {
  EXPECT_FALSE(trouble_with({}));
  EXPECT_FALSE(trouble_with(line(2.3, 0.1, 50)));
  EXPECT_FALSE(trouble_with(line(2.3, 0, 50)));
  EXPECT_FALSE(trouble_with(line(2.3, 0.001, 25) + line(0.001, 0.01, 25)));  // ten times as much of next to nothing
  EXPECT_FALSE(trouble_with({1, 3, 2}));                                     // too few to judge
  EXPECT_EQ(trouble_with({1, std::nan(""), 2}), "the loss is nan at step 2");
  EXPECT_EQ(trouble_with({1, 2, std::numeric_limits<double>::infinity()}, 4), "the loss is inf at step 9");
  EXPECT_EQ(trouble_with({0.5, 0.25, 6, 0.125}), "the loss jumped to 6.000000 at step 3, and began at 0.500000");
  EXPECT_EQ(trouble_with(line(2, 8, 20)),
            "the loss has diverged: it began at 2.000000, and the median of the last tenth is 8.000000");
  EXPECT_THAT(trouble_with(line(2.3, 0, 30) + line(0, 1.9, 30)).value_or(""),
              testing::HasSubstr("the loss rose again"));
}

TEST(Result, DocumentSaysThatALossWentWrong) {
  Result result;
  result.config = checked({});
  EXPECT_FALSE(document(result).contains("loss_trouble"));
  result.losses = line(1, 9, 20);
  EXPECT_TRUE(document(result).contains("loss_trouble"));
}

TEST(Result, ReplicasOfAStageHaveOneDigestAndStagesDiffer) {
  Result result = of_pipelines();
  EXPECT_TRUE(result.digests_agree());
  result.digests[3] = "c";
  EXPECT_FALSE(result.digests_agree());
  EXPECT_FALSE(document(result)["weights_agree"].get<bool>());
  // The same of ddp would be four models.
  result.digests[3] = "b";
  result.config.strategy = StrategyKind::ddp;
  EXPECT_FALSE(result.digests_agree());
}

TEST(Result, Quantiles) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({3}, 0.99), 3);
  EXPECT_EQ(quantile({5, 1, 3, 2, 4}, 0.5), 3);
  EXPECT_EQ(quantile({5, 1, 3, 2, 4}, 1), 5);
}

}  // namespace
}  // namespace lockstep::train
