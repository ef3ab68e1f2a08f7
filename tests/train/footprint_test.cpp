#include "lockstep/train/footprint.h"

#include <gmock/gmock.h>

#include "lockstep/error.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;

constexpr double kParameters = 1e6, kOne = 4e6;

TrainingConfig of(StrategyKind strategy, int ranks, OptimizerKind optimizer = OptimizerKind::adam) {
  return checked({.strategy = strategy, .ranks = ranks, .optimizer = optimizer});
}

TEST(Footprint, EveryRankHasWeightsGradientsAndState) {
  EXPECT_EQ(footprint(of(StrategyKind::single, 1), kParameters, 1).total(), 4 * kOne);
  EXPECT_EQ(footprint(of(StrategyKind::manual, 1), kParameters, 1).total(), 8 * kOne);
  EXPECT_EQ(footprint(of(StrategyKind::ddp, 3), kParameters, 3).total(), 12 * kOne);
  EXPECT_EQ(footprint(of(StrategyKind::ddp, 3, OptimizerKind::momentum), kParameters, 3).total(), 9 * kOne);
  EXPECT_EQ(footprint(of(StrategyKind::ddp, 3, OptimizerKind::sgd), kParameters, 3).total(), 6 * kOne);
  EXPECT_EQ(footprint(of(StrategyKind::ddp, 4), kParameters, 2).total(), 8 * kOne) << "the other two are elsewhere";
}

TEST(Footprint, WhatIsSplitCountsOnce) {
  const Footprint sharded = footprint(of(StrategyKind::sharded, 4), kParameters, 4);
  EXPECT_EQ(sharded.weights, kOne);
  EXPECT_EQ(sharded.gradients, 4 * kOne);
  EXPECT_EQ(sharded.state, 2 * kOne);
  EXPECT_EQ(footprint(of(StrategyKind::pipeline, 4), kParameters, 4).total(), 4 * kOne);
  TrainingConfig emulated = of(StrategyKind::pipeline, 4);
  emulated.pipeline.emulate = pipeline::Times{1, 1, 1};
  EXPECT_EQ(footprint(emulated, kParameters, 4).total(), kOne);
}

TEST(Footprint, TooMuchIsRefusedWithItsParts) {
  EXPECT_NO_THROW(check_footprint(of(StrategyKind::ddp, 2), 1e9, 2, 32e9));
  try {
    check_footprint(of(StrategyKind::ddp, 2), 1e9, 2, 31e9);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr("mlp 16x128 has 1e+09 parameters; ddp on 2 ranks of this host needs 32.0 GB: 8.0 for weights, 8.0 "
                  "for gradients, 16.0 for the state of adam; 31.0 GB can be had; try: "));
  }
}

}  // namespace
}  // namespace lockstep::train
