#include "lockstep/parallel/pipeline/run/partition.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/model.h"
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

TEST(Partition, MeasuresLayersOneAtATime) {
  int alive = 0, most = 0, made = 0;
  // A module that counts how many of its kind there are.
  struct WatchImpl : torch::nn::Module {
    WatchImpl(int& alive, int& most) : alive_(alive) { most = std::max(most, ++alive_); }
    ~WatchImpl() override { --alive_; }
    Tensor forward(const Tensor& x) { return linear(x); }
    int& alive_;
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 4));
  };
  const model::Layer watched{20, [&] {
                               ++made;
                               return torch::nn::AnyModule(std::make_shared<WatchImpl>(alive, most));
                             }};
  const model::Layer wide{1600 * 4, [] { return torch::nn::AnyModule(torch::nn::Linear(4, 40'000)); }};
  const std::vector<model::Layer> layers{watched, watched, watched, wide};
  const std::vector<double> seconds = measure(layers, torch::ones({16, 4}), 5);
  ASSERT_EQ(seconds.size(), 4U);
  for (const double one : seconds) EXPECT_GT(one, 0);
  EXPECT_GT(seconds[3], seconds[1]);  // 10,000 times the work
  EXPECT_EQ(made, 3);
  EXPECT_EQ(most, 1);
  EXPECT_EQ(alive, 0);
}

TEST(Partition, MeasuredLayersTakeWhatTheOneBeforeGives) {
  const auto layers =
      model::layers_of({.kind = model::ModelKind::cnn, .channels = {2, 3}, .hidden = 4, .classes = 5, .image_side = 8});
  EXPECT_EQ(measure(layers, torch::randn({2, 1, 8, 8}), 1).size(), layers.size());
  EXPECT_ANY_THROW(measure(layers, torch::randn({2, 1, 6, 6}), 1));
  EXPECT_EQ(measure(model::mlp_layers(3, 2, 1), torch::randn({2, 3}), 0).size(), 5U);  // no repeats is one
  EXPECT_TRUE(measure(std::span<const model::Layer>(), torch::randn({2, 3})).empty());
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

// Any model's: joined, the stages are the whole.
TEST(MakeStage, HasTheBitsAndNamesOfTheWhole) {
  const model::ModelConfig mlp{.dim = 5, .depth = 6, .outputs = 3};
  const model::ModelConfig cnn{
      .kind = model::ModelKind::cnn, .channels = {3, 4}, .hidden = 12, .classes = 5, .image_side = 8};
  for (const model::ModelConfig& config : {mlp, cnn}) {
    const auto layers = model::layers_of(config);
    Tensor next;
    const Sequential whole = seeded([&] {
      Sequential made = model::make_model(config);
      next = torch::rand({2});
      return made;
    });
    for (int stages = 1; stages <= 4; ++stages) {
      std::vector<std::string> names;
      for (const Range& range : partition(costs_of(layers), stages)) {
        Tensor after;
        const Sequential part = seeded([&] {
          Sequential made = make_stage(layers, range);
          after = torch::rand({2});
          return made;
        });
        EXPECT_TRUE(torch::equal(after, next)) << "the generator stands elsewhere than after the whole";
        for (const auto& item : part->named_parameters()) {
          names.push_back(item.key());
          EXPECT_TRUE(torch::equal(item.value(), whole->named_parameters()[item.key()])) << item.key();
        }
        for (const auto& item : part->named_children()) EXPECT_TRUE(whole->named_children().contains(item.key()));
      }
      EXPECT_EQ(names, whole->named_parameters().keys());
    }
    const auto planned = costs_of(layers);
    const auto real = costs_of(*whole);
    ASSERT_EQ(planned.size(), real.size());
    for (std::size_t i = 0; i < real.size(); ++i) EXPECT_EQ(planned[i].parameters, real[i].parameters) << i;
  }
}

TEST(MakeStage, RefusesRangesThatAreNot) {
  const auto layers = model::mlp_layers(4, 2, 1);  // 5 modules
  for (const Range& bad : {Range{-1, 2}, Range{0, 6}, Range{3, 3}, Range{4, 2}})
    EXPECT_THAT([&] { make_stage(layers, bad); }, ::testing::ThrowsMessage<UsageError>(HasSubstr(fmt::format(
                                                      "modules {} to {} of a model of 5", bad.begin, bad.end))));
}

// Only the stage's own layers must fit: a model that no machine holds has stages that one does.
TEST(MakeStage, RefusesAStageThatNoMemoryHolds) {
  int made = 0;
  const model::Layer huge{std::int64_t{1} << 50, [&] {
                            ++made;
                            return torch::nn::AnyModule(torch::nn::ReLU());
                          }};
  const model::Layer small{4, [] { return torch::nn::AnyModule(torch::nn::Linear(1, 2)); }};
  const std::vector<model::Layer> layers{huge, small};
  EXPECT_THAT(
      [&] {
        make_stage(layers, {0, 1});
      },
      ::testing::ThrowsMessage<UsageError>(HasSubstr("the stage of modules 0 to 1 has 1.13e+15 parameters")));
  EXPECT_EQ(made, 0);
  EXPECT_EQ(make_stage(layers, {1, 2})->size(), 1U);
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
