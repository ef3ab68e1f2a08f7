// The transformer: its parameters, what a position may see, tied weights, and sizes that it refuses. Whether it draws
// and computes what Python does is in tests/data/python_test.cpp.
#include "lockstep/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/error.h"
#include "lockstep/model/transformer_modules.h"
#include "numerics.h"

namespace lockstep::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TransformerSizes kSmall{.dim = 12, .depth = 2, .heads = 3, .vocabulary = 7, .sequence = 5};

TransformerSizes small(const std::function<void(TransformerSizes&)>& change) {
  TransformerSizes sizes = kSmall;
  change(sizes);
  return sizes;
}

std::string refusal_of(const TransformerSizes& sizes) {
  try {
    transformer_layers(sizes);
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("; try: "));
    EXPECT_THROW(Transformer{sizes}, UsageError);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(Transformer, HasTheNamesOfPython) {
  const Transformer model(small([](auto& s) { s.depth = 1; }));
  EXPECT_THAT(model->named_parameters().keys(),
              ElementsAre("0.token.weight", "0.position.weight", "1.attention_norm.weight", "1.attention_norm.bias",
                          "1.qkv.weight", "1.qkv.bias", "1.projection.weight", "1.projection.bias", "1.mlp_norm.weight",
                          "1.mlp_norm.bias", "1.up.weight", "1.up.bias", "1.down.weight", "1.down.bias", "2.weight",
                          "2.norm.weight", "2.norm.bias"));
}

TEST(Transformer, GivesEachPositionAScoreForEachToken) {
  Transformer model(kSmall);
  for (const std::int64_t length : {1, 4, 5})
    EXPECT_EQ(model->forward(torch::zeros({3, length}, torch::kInt64)).sizes().vec(),
              (std::vector<std::int64_t>{3, length, 7}));
  EXPECT_EQ(model->forward(torch::zeros({0, 5}, torch::kInt64)).sizes().vec(), (std::vector<std::int64_t>{0, 5, 7}));
  EXPECT_THROW(model->forward(torch::zeros({3, 6}, torch::kInt64)), UsageError) << "more tokens than positions";
}

// Untrained, it knows nothing: its loss is about that of equal scores.
TEST(Transformer, BeginsWithScoresOfAboutOne) {
  for (const bool tied : {false, true}) {
    torch::manual_seed(1);
    Transformer model(TransformerSizes{.dim = 64, .depth = 4, .tied = tied});
    const torch::Tensor scores = model->forward(torch::randint(0, 256, {16, 32}, torch::kInt64));
    EXPECT_GT(scores.std().item<double>(), 0.3) << tied;
    EXPECT_LT(scores.std().item<double>(), 1.5) << tied;
  }
}

TEST(Transformer, NoPositionSeesALaterOne) {
  torch::manual_seed(2);
  Transformer model(kSmall);
  const torch::Tensor tokens = torch::randint(0, 7, {2, 5}, torch::kInt64);
  const torch::Tensor before = model->forward(tokens);
  for (std::int64_t changed = 0; changed < 5; ++changed) {
    torch::Tensor other = tokens.clone();
    other.select(1, changed).add_(1).remainder_(7);
    const torch::Tensor after = model->forward(other);
    EXPECT_TRUE(torch::equal(after.narrow(1, 0, changed), before.narrow(1, 0, changed))) << changed;
    for (std::int64_t later = changed; later < 5; ++later)
      EXPECT_FALSE(test::close(after.select(1, later), before.select(1, later))) << changed << " " << later;
  }
}

// Two heads of width 1 are small enough to be written out.
TEST(Transformer, AttentionIsAMeanOfValuesWeightedByHowKeysFitTheQuery) {
  torch::manual_seed(3);
  TransformerBlock block(2, 2);
  const torch::NoGradGuard no_grad;
  block->down->weight.zero_();  // leaves only the attention
  block->down->bias.zero_();
  const torch::Tensor x = torch::randn({1, 3, 2});
  const torch::Tensor all = block->qkv->forward(block->attention_norm->forward(x))[0];
  const auto at = [&](std::int64_t position, std::int64_t column) { return all[position][column].item<double>(); };
  torch::Tensor heads = torch::zeros({1, 3, 2});
  for (std::int64_t head = 0; head < 2; ++head)
    for (std::int64_t position = 0; position < 3; ++position) {
      double sum = 0, weights = 0;
      for (std::int64_t seen = 0; seen <= position; ++seen) {
        const double weight = std::exp(at(position, head) * at(seen, 2 + head));
        weights += weight;
        sum += weight * at(seen, 4 + head);
      }
      heads[0][position][head] = sum / weights;
    }
  EXPECT_TRUE(test::close(block->forward(x), x + block->projection->forward(heads)));
}

TEST(Transformer, TiedWeightsAreOneTensorThatCountsOnce) {
  const Transformer apart(kSmall), tied(small([](auto&s) { s.tied = true; }));
  EXPECT_EQ(size_of(*apart).parameters - size_of(*tied).parameters, 7 * 12);
  EXPECT_FALSE(apart->named_parameters()["3.weight"].is_same(apart->named_parameters()["0.token.weight"]));
  EXPECT_TRUE(tied->named_parameters()["3.weight"].is_same(tied->named_parameters()["0.token.weight"]));
}

TEST(Transformer, TiedLayersThatAreMadeOneByOneShareTheWeightToo) {
  const auto layers = transformer_layers(small([](auto& s) { s.tied = true; }));
  ASSERT_EQ(layers.size(), 4U);
  EXPECT_THROW(layers.back().make(), UsageError) << "there is no embedding yet";
  for (int i = 0; i < 2; ++i) {
    const auto embedding = layers.front().make(), output = layers.back().make();
    EXPECT_TRUE(
        output.ptr()->named_parameters()["weight"].is_same(embedding.ptr()->named_parameters()["token.weight"]));
  }
  EXPECT_EQ(size_of(layers).parameters, size_of(*Transformer(small([](auto& s) { s.tied = true; }))).parameters);
}

TEST(Transformer, RefusesBadSizesByName) {
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-3}}) {
    const std::string value = " is " + std::to_string(bad);
    EXPECT_THAT(refusal_of(small([=](auto& s) { s.dim = bad; })), HasSubstr("dim" + value));
    EXPECT_THAT(refusal_of(small([=](auto& s) { s.depth = bad; })), HasSubstr("depth" + value));
    EXPECT_THAT(refusal_of(small([=](auto& s) { s.heads = bad; })), HasSubstr("heads" + value));
    EXPECT_THAT(refusal_of(small([=](auto& s) { s.vocabulary = bad; })), HasSubstr("vocabulary" + value));
    EXPECT_THAT(refusal_of(small([=](auto& s) { s.sequence = bad; })), HasSubstr("sequence" + value));
  }
  EXPECT_THAT(refusal_of(small([](auto& s) { s.heads = 5; })),
              HasSubstr("5 heads do not divide dim 12; try: heads 4, or dim 15"));
  EXPECT_THAT(refusal_of(small([](auto& s) { s.heads = 13; })), HasSubstr("try: heads 12, or dim 13"));
  EXPECT_THAT(refusal_of(small([](auto& s) { s.depth = 1'000'000'000; })), HasSubstr("depth is 1000000000"));
}

TEST(Transformer, RefusesWhatNoMemoryHolds) {
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_THAT(refusal_of(small([=](auto& s) { s.dim = huge - huge % 3; })), HasSubstr("this machine has"));
  EXPECT_THAT(refusal_of(small([=](auto& s) { s.vocabulary = huge; })), HasSubstr("this machine has"));
  EXPECT_THAT(refusal_of(small([=](auto& s) { s.sequence = huge; })), HasSubstr("this machine has"));
  // Each layer fits, but all of them do not: a list is possible, a whole model is not.
  const TransformerSizes deep = small([](auto& s) { s.dim = 3 * 1024, s.depth = 100'000; });
  EXPECT_EQ(transformer_layers(deep).size(), 100'002U);
  EXPECT_THROW(Transformer{deep}, UsageError);
}

}  // namespace
}  // namespace lockstep::model
