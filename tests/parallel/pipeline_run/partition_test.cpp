#include "lockstep/parallel/pipeline/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nets.h"

namespace lockstep::pipeline {
namespace {

using namespace test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<ModuleCost> with_parameters(const std::vector<std::int64_t>& counts) {
  std::vector<ModuleCost> costs;
  for (const std::int64_t count : counts) costs.push_back({.parameters = count});
  return costs;
}

TEST(Partition, SpreadsWhatDoesNotDivide) {
  const std::vector<ModuleCost> ten = with_parameters(std::vector<std::int64_t>(10, 1));
  EXPECT_THAT(partition(ten, 1), ElementsAre(Range{0, 10}));
  EXPECT_THAT(partition(ten, 4), ElementsAre(Range{0, 3}, Range{3, 6}, Range{6, 8}, Range{8, 10}));
  EXPECT_EQ(partition(ten, 10).back(), (Range{9, 10}));
}

TEST(Partition, EveryCountCoversAllAndIsEven) {
  for (int layers = 1; layers <= 17; ++layers)
    for (int stages = 1; stages <= layers; ++stages) {
      const auto ranges =
          partition(with_parameters(std::vector<std::int64_t>(static_cast<std::size_t>(layers), 7)), stages);
      ASSERT_EQ(ranges.size(), static_cast<std::size_t>(stages));
      std::int64_t next = 0;
      for (const Range& range : ranges) {
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.end - range.begin, layers / stages);
        EXPECT_LE(range.end - range.begin, (layers + stages - 1) / stages);
        next = range.end;
      }
      EXPECT_EQ(next, layers);
    }
}

TEST(Partition, ByParametersAndByTime) {
  EXPECT_THAT(partition(with_parameters({8, 1, 1, 1, 1, 4}), 2, Balance::parameters),
              ElementsAre(Range{0, 1}, Range{1, 6}));
  std::vector<ModuleCost> costs = with_parameters({8, 1, 1, 1, 1, 4});
  EXPECT_THROW(partition(costs, 2, Balance::time), UsageError);
  const double seconds[] = {1, 1, 1, 5, 2, 2};
  for (std::size_t i = 0; i < costs.size(); ++i) costs[i].seconds = seconds[i];
  EXPECT_THAT(partition(costs, 3, Balance::time), ElementsAre(Range{0, 3}, Range{3, 4}, Range{4, 6}));
}

TEST(Partition, KeepsModulesWithoutParametersWithTheirLayer) {
  const Sequential cnn = seeded(cnn_task().make);  // Conv ReLU Pool Conv ReLU Pool Flatten Linear ReLU Linear
  EXPECT_THAT(partition(costs_of(*cnn), 4), ElementsAre(Range{0, 3}, Range{3, 7}, Range{7, 9}, Range{9, 10}));
}

TEST(Partition, RefusesMoreStagesThanLayers) {
  EXPECT_THAT([] { partition(costs_of(MLPSizes{.dim = 4, .depth = 3}), 5); },
              ::testing::ThrowsMessage<UsageError>(HasSubstr("5 stages for a network of 4 layers")));
  EXPECT_THROW(partition(costs_of(MLPSizes{.dim = 4, .depth = 3}), 0), UsageError);
}

TEST(Partition, MeasuresWithoutATrace) {
  const Sequential net(torch::nn::Linear(2, 400), torch::nn::ReLU(), torch::nn::Linear(400, 400), torch::nn::ReLU(),
                       torch::nn::Linear(400, 2));
  const std::vector<ModuleCost> costs = measure(*net, torch::randn({64, 2}));
  ASSERT_EQ(costs.size(), 5U);
  for (const ModuleCost& cost : costs) EXPECT_GT(cost.seconds, 0);
  EXPECT_GT(costs[2].seconds, costs[4].seconds);  // 200 times the work
  EXPECT_EQ(costs[2].parameters, 400 * 401);
  for (const Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(Partition, CutSharesModulesAndNames) {
  const Sequential whole = seeded(mlp_task().make);
  const Sequential part = cut(*whole, {4, 7});
  EXPECT_EQ(part->size(), 3U);
  EXPECT_EQ(part->named_parameters()[0].key(), "4.weight");
  EXPECT_TRUE(part->named_parameters()["6.bias"].is_same(whole->named_parameters()["6.bias"]));
  EXPECT_THROW(cut(*whole, {4, 100}), UsageError);
}

TEST(ShardedMLP, HasTheBitsOfTheWhole) {
  const MLPSizes sizes{.dim = 6, .depth = 16};
  const auto whole = seeded([] { return std::make_shared<model::FullMLPImpl>(6, 16); });
  for (int stages : {1, 2, 4, 5}) {
    std::size_t found = 0;
    for (const Range& range : partition(costs_of(sizes), stages)) {
      const auto part = seeded([&] { return std::make_shared<ShardedMLPImpl>(sizes, range); });
      EXPECT_EQ(part->size(), static_cast<std::size_t>(range.end - range.begin));
      for (const auto& item : part->named_parameters()) {
        EXPECT_TRUE(torch::equal(item.value(), whole->named_parameters()[item.key()])) << item.key();
        ++found;
      }
    }
    EXPECT_EQ(found, whole->parameters().size());
  }
  EXPECT_THROW(ShardedMLP(sizes, Range{0, 34}), UsageError);
}

TEST(ShardedMLP, CostsAreThoseOfTheWhole) {
  const auto planned = costs_of(MLPSizes{.dim = 6, .depth = 16});
  const auto whole = costs_of(*model::FullMLP(6, 16));
  ASSERT_EQ(planned.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(planned[i].parameters, whole[i].parameters);
}

TEST(CutBatch, RowsInOrder) {
  const auto parts = cut_batch(torch::arange(7), 3);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].size(0), 3);
  EXPECT_EQ(parts[2].size(0), 2);
  EXPECT_TRUE(torch::equal(torch::cat(parts), torch::arange(7)));
  EXPECT_THAT([] { cut_batch(torch::arange(7), 8); },
              ::testing::ThrowsMessage<UsageError>(HasSubstr("8 microbatches of a batch of 7 samples")));
}

}  // namespace
}  // namespace lockstep::pipeline
