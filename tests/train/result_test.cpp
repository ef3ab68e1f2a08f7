#include "lockstep/train/result.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

TEST(Result, DocumentHasTheShapeThatScriptsRelyOn) {
  Result result;
  result.config = checked({});
  result.transport = "shm";
  result.losses = {0.7, 0.6};
  result.step_p50 = 0.004;
  result.phases = {.forward = 0.001, .backward = 0.002, .communication = 0.002, .exposed_communication = 0.0005};
  result.digests = {"ab", "ab"};
  const auto d = document(result);
  for (const char* field : {"strategy", "engine", "transport", "ranks", "model", "parameters", "steps", "losses",
                            "step_ms", "phase_ms", "weights_digest"})
    EXPECT_TRUE(d.contains(field)) << field;
  EXPECT_EQ(d["steps"], 2);
  EXPECT_DOUBLE_EQ(d["step_ms"]["p50"], 4);
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

TEST(Result, Quantiles) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({3}, 0.99), 3);
  EXPECT_EQ(quantile({5, 1, 3, 2, 4}, 0.5), 3);
  EXPECT_EQ(quantile({5, 1, 3, 2, 4}, 1), 5);
}

}  // namespace
}  // namespace lockstep::train
