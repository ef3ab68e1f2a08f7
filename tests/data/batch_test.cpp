// Batches, the rows of a rank, and made-up data.
#include "lockstep/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <vector>

#include "lockstep/error.h"
#include "numerics.h"

namespace lockstep::data {
namespace {

TEST(RowsOf, DividesEvenlyWhenItCan) {
  EXPECT_EQ(rows_of(0, 4, 32), (Rows{0, 8}));
  EXPECT_EQ(rows_of(3, 4, 32), (Rows{24, 32}));
}

TEST(RowsOf, GivesOneMoreToTheFirstRanks) {
  EXPECT_EQ(rows_of(0, 3, 32), (Rows{0, 11}));
  EXPECT_EQ(rows_of(1, 3, 32), (Rows{11, 22}));
  EXPECT_EQ(rows_of(2, 3, 32), (Rows{22, 32}));
}

TEST(RowsOf, CoversEveryRowOnce) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const std::int64_t n : {0, 1, 7, 8, 9, 100, 4097}) {
      std::int64_t next = 0;
      for (Rank rank = 0; rank < ranks; ++rank) {
        const Rows rows = rows_of(rank, ranks, n);
        EXPECT_EQ(rows.begin, next);
        EXPECT_TRUE(rows.count() == n / ranks || rows.count() == n / ranks + 1);
        next = rows.end;
      }
      EXPECT_EQ(next, n);
    }
}

TEST(RowsOf, RefusesARankOutsideTheWorld) {
  EXPECT_THROW(rows_of(2, 2, 8), UsageError);
  EXPECT_THROW(rows_of(-1, 2, 8), UsageError);
  EXPECT_THROW(rows_of(0, 2, -1), UsageError);
}

// The mean over all rows, put together from the ranks' means.
TEST(Batch, WeightedByShareTheRanksMeansGiveTheWholesMean) {
  torch::manual_seed(1);
  const Batch whole = regression(10, 3, 0.1);
  EXPECT_EQ(whole.share(), 1.0);
  double mean = 0;
  for (Rank rank = 0; rank < 4; ++rank) {
    const Batch mine = slice(whole, rank, 4);
    EXPECT_EQ(mine.whole, 10);
    EXPECT_EQ(mine.rows(), rank < 2 ? 3 : 2);
    mean += mine.share() * mine.targets.mean().item<double>();
  }
  EXPECT_TRUE(test::close(mean, whole.targets.mean().item<double>()));
}

TEST(Batch, SlicesAreTheRowsOfTheWhole) {
  const Batch whole = images(7, 4, 3);
  std::vector<torch::Tensor> inputs, targets;
  for (Rank rank = 0; rank < 3; ++rank) {
    inputs.push_back(slice(whole, rank, 3).inputs);
    targets.push_back(slice(whole, rank, 3).targets);
  }
  EXPECT_TRUE(torch::equal(torch::cat(inputs), whole.inputs));
  EXPECT_TRUE(torch::equal(torch::cat(targets), whole.targets));
}

TEST(Batch, ASliceMayBeEmpty) {
  const Batch mine = slice(classification(2, 3), 2, 3);
  EXPECT_EQ(mine.rows(), 0);
  EXPECT_EQ(mine.share(), 0.0);
}

TEST(Batch, HasNoShareOfAnUnknownWhole) {
  EXPECT_THROW((Batch{.inputs = torch::ones({2, 3}), .targets = torch::ones(2)}.share()), UsageError);
}

TEST(Synthetic, ShapesTypesAndRange) {
  const Batch rows = classification(500, 6, 4);
  EXPECT_EQ(rows.inputs.sizes().vec(), (std::vector<std::int64_t>{500, 6}));
  EXPECT_EQ(rows.targets.scalar_type(), torch::kInt64);
  EXPECT_EQ(rows.targets.min().item<int>(), 0);
  EXPECT_EQ(rows.targets.max().item<int>(), 3);
  const Batch pictures = images(300, 8, 5);
  EXPECT_EQ(pictures.inputs.sizes().vec(), (std::vector<std::int64_t>{300, 1, 8, 8}));
  EXPECT_EQ(pictures.targets.max().item<int>(), 4);
  EXPECT_NEAR(pictures.inputs.mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(pictures.inputs.std().item<double>(), 1, 0.05);
}

// Without wrong labels a line separates the classes; every wrong label moves one to the other side.
TEST(Synthetic, ATeachersRuleCanBeLearntButForTheWrongLabels) {
  const auto agreement = [](double wrong) {
    torch::manual_seed(3);
    const Batch batch = teacher(2000, 6, wrong);
    EXPECT_EQ(batch.targets.scalar_type(), torch::kInt64);
    torch::manual_seed(3);
    const torch::Tensor inputs = torch::randn({2000, 6});
    EXPECT_TRUE(torch::equal(batch.inputs, inputs));
    const torch::Tensor rule = torch::mv(inputs, torch::randn({6})) > 0;
    return (rule == batch.targets.to(torch::kBool)).to(torch::kDouble).mean().item<double>();
  };
  EXPECT_EQ(agreement(0), 1);
  EXPECT_NEAR(agreement(0.1), 0.9, 0.03);  // 4.5 standard deviations of 2000 draws
  EXPECT_EQ(agreement(1), 0);
}

TEST(Synthetic, TheSeedDecides) {
  const auto draw = [](std::uint64_t seed) {
    torch::manual_seed(seed);
    return regression(8, 3, 0.5).targets;
  };
  EXPECT_TRUE(torch::equal(draw(7), draw(7)));
  EXPECT_FALSE(torch::equal(draw(7), draw(8)));
}

// Without noise some w* explains the targets exactly; with noise what is left over has the noise's size.
TEST(Synthetic, RegressionIsLinearPlusNoise) {
  torch::manual_seed(3);
  for (const double noise : {0.0, 0.5}) {
    const Batch batch = regression(2000, 5, noise);
    EXPECT_EQ(batch.targets.sizes().vec(), (std::vector<std::int64_t>{2000, 1}));
    const torch::Tensor x = batch.inputs.to(torch::kFloat64), y = batch.targets.to(torch::kFloat64);
    const torch::Tensor weights = torch::mm(torch::mm(x.t(), x).inverse(), torch::mm(x.t(), y));
    const double left = (y - torch::mm(x, weights)).std().item<double>(), all = y.std().item<double>();
    EXPECT_NEAR(left, noise, noise == 0 ? test::kClose * all : 0.05);
    EXPECT_GT(all, 0.7);
  }
}

TEST(Synthetic, RefusesSizesBelowOne) {
  EXPECT_THROW(teacher(0, 3, 0.1), UsageError);
  EXPECT_THROW(teacher(3, 3, 1.5), UsageError);
  EXPECT_THROW(teacher(3, 3, std::nan("")), UsageError);
  EXPECT_THROW(classification(0, 3), UsageError);
  EXPECT_THROW(classification(3, -1), UsageError);
  EXPECT_THROW(classification(3, 3, 0), UsageError);
  EXPECT_THROW(regression(3, 0, 0.1), UsageError);
  EXPECT_THROW(regression(3, 3, -0.1), UsageError);
  EXPECT_THROW(images(3, 0, 2), UsageError);
}

}  // namespace
}  // namespace lockstep::data
