#include "lockstep/train/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

TEST(Config, WhatWasLeftOpenIsFilledIn) {
  const TrainingConfig c = checked({});
  EXPECT_EQ(c.strategy, "ddp");
  EXPECT_EQ(c.ranks, 2);
  EXPECT_EQ(c.batch, 32);
  EXPECT_EQ(c.steps, 50);
  EXPECT_EQ(c.epochs, 0);
  EXPECT_EQ(checked({.strategy = "single"}).ranks, 1);
  EXPECT_EQ(checked({.ranks = 3, .batch_per_rank = 5}).batch, 15);
}

TEST(Config, ImagesHaveEpochsAndDecideTheModelsEnds) {
  TrainingConfig c{.data = "fashion-mnist"};
  c.model.dim = 784;
  c = checked(c);
  EXPECT_EQ(c.epochs, 1);
  EXPECT_EQ(c.steps, 0);
  EXPECT_EQ(c.model.outputs, 10);
  EXPECT_EQ(checked({.data = "regression"}).model.outputs, 1);
}

struct Bad {
  const char* name;
  std::function<void(TrainingConfig&)> harm;
  const char* says;
};
std::ostream& operator<<(std::ostream& out, const Bad& bad) { return out << bad.name; }

class BadConfig : public testing::TestWithParam<Bad> {};

TEST_P(BadConfig, IsRefusedWithTheValueAndWhatToTry) {
  TrainingConfig c;
  GetParam().harm(c);
  try {
    static_cast<void>(checked(c));
    FAIL() << "was not refused";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().says));
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("try: "), HasSubstr("one of")));
    EXPECT_EQ(error.exit_code(), kExitUsage);
  }
}

using C = TrainingConfig;
INSTANTIATE_TEST_SUITE_P(
    , BadConfig,
    testing::Values(
        Bad{"strategy", [](C& c) { c.strategy = "dpp"; }, "no strategy 'dpp'; try: ddp"},
        Bad{"model", [](C& c) { c.model.name = "cmn"; }, "no model 'cmn'; try: cnn"},
        Bad{"data", [](C& c) { c.data = "fashion_mnist"; }, "try: fashion-mnist"},
        Bad{"optimizer", [](C& c) { c.optimizer = "adamm"; }, "try: adam"},
        Bad{"transport", [](C& c) { c.transport = "tpc"; }, "try: tcp"},
        Bad{"algorithm", [](C& c) { c.algorithm = "round"; }, "round"},
        Bad{"tail", [](C& c) { c.tail = "pda"; }, "try: pad"},
        Bad{"ranks", [](C& c) { c.ranks = -1; }, "--ranks is -1"},
        Bad{"one_process",
            [](C& c) {
              c.strategy = "single";
              c.ranks = 2;
            },
            "single is one process, and --ranks is 2"},
        Bad{"batch_smaller_than_ranks",
            [](C& c) {
              c.ranks = 4;
              c.batch = 3;
            },
            "a batch of 3 is smaller than the 4 ranks"},
        Bad{"both_batches",
            [](C& c) {
              c.batch = 4;
              c.batch_per_rank = 2;
            },
            "both --batch 4 and --batch-per-rank 2"},
        Bad{"overflow", [](C& c) { c.batch_per_rank = std::int64_t{1} << 62; }, "--batch-per-rank"},
        Bad{"too_many_microbatches", [](C& c) { c.accumulate = 17; }, "--accumulate 16"},
        Bad{"hooks_accumulate",
            [](C& c) {
              c.strategy = "hooks";
              c.accumulate = 2;
            },
            "hooks can't accumulate"},
        Bad{"steps_and_epochs",
            [](C& c) {
              c.data = "mnist";
              c.steps = c.epochs = 1;
            },
            "both --steps 1 and --epochs 1"},
        Bad{"epochs_of_synthetic", [](C& c) { c.epochs = 2; }, "--epochs 2, but synthetic data is one batch"},
        Bad{"cnn_regression",
            [](C& c) {
              c.model.name = "cnn";
              c.data = "regression";
            },
            "--model mlp"},
        Bad{"dim_of_images", [](C& c) { c.data = "mnist"; }, "--dim is 128, and an image of mnist has 784 pixels"},
        Bad{"buckets_of_naive",
            [](C& c) {
              c.strategy = "naive";
              c.bucket_mb = 1;
            },
            "naive has no buckets"},
        Bad{"bucket_size", [](C& c) { c.bucket_mb = 0; }, "--bucket-mb is 0"},
        Bad{"flat_hooks",
            [](C& c) {
              c.strategy = "hooks";
              c.flat = true;
            },
            "--strategy ddp --flat"},
        Bad{"sharded_tcp",
            [](C& c) {
              c.strategy = "sharded";
              c.transport = "tcp";
            },
            "--transport shm"},
        Bad{"lr", [](C& c) { c.lr = 0; }, "--lr is 0"},
        Bad{"save_nowhere", [](C& c) { c.save = "/no/such/folder/w"; }, "there is no folder /no/such/folder"},
        Bad{"save_to_a_folder", [](C& c) { c.save = "/tmp"; }, "--save /tmp is a folder"},
        Bad{"load_nothing", [](C& c) { c.load = "/no/such/file"; }, "--load /no/such/file"}),
    [](const auto& bad) { return std::string(bad.param.name); });

}  // namespace
}  // namespace lockstep::train
