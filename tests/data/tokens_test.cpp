// Tokens from a Markov chain: what follows what, how often, and what the best loss is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "lockstep/data.h"
#include "lockstep/data/chain.h"
#include "lockstep/error.h"

namespace lockstep::data {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

TEST(Chain, EachSuccessorIsHalfAsLikelyAsTheOneBefore) {
  EXPECT_THAT(successor_probabilities(1), ElementsAre(1));
  EXPECT_THAT(successor_probabilities(2), ElementsAre(DoubleNear(2.0 / 3, 1e-12), DoubleNear(1.0 / 3, 1e-12)));
  for (const std::int64_t vocabulary : {4, 5, 1000000})
    EXPECT_THAT(successor_probabilities(vocabulary),
                ElementsAre(DoubleNear(8.0 / 15, 1e-12), DoubleNear(4.0 / 15, 1e-12), DoubleNear(2.0 / 15, 1e-12),
                            DoubleNear(1.0 / 15, 1e-12)));
}

TEST(Chain, ItsEntropyIsTheNumberInTheDocumentation) {
  EXPECT_EQ(chain_entropy(1), 0);
  EXPECT_NEAR(chain_entropy(256), 1.1369, 5e-5);
  EXPECT_NEAR(chain_entropy(2), std::log(3) - 2.0 / 3 * std::log(2), 1e-12);
}

// How often each token was followed by each other one.
std::map<std::int64_t, std::map<std::int64_t, double>> pairs_in(const Batch& batch) {
  std::map<std::int64_t, std::map<std::int64_t, double>> counts;
  const torch::Tensor inputs = batch.inputs.flatten(), targets = batch.targets.flatten();
  for (std::int64_t i = 0; i < inputs.numel(); ++i)
    ++counts[inputs[i].item<std::int64_t>()][targets[i].item<std::int64_t>()];
  return counts;
}

TEST(Tokens, AreRowsOfTheChain) {
  torch::manual_seed(5);
  const Batch batch = tokens(6, 7, 11);
  EXPECT_EQ(batch.inputs.sizes().vec(), (std::vector<std::int64_t>{6, 7}));
  EXPECT_EQ(batch.inputs.scalar_type(), torch::kInt64);
  EXPECT_EQ(batch.whole, 6);
  EXPECT_TRUE(torch::equal(batch.inputs.narrow(1, 1, 6), batch.targets.narrow(1, 0, 6))) << "the next token";
  EXPECT_GE(batch.inputs.min().item<std::int64_t>(), 0);
  EXPECT_LT(batch.targets.max().item<std::int64_t>(), 11);
}

// The loss of a model that knows the chain, measured, is the entropy of the chain.
TEST(Tokens, FollowEachOtherAsTheChainSays) {
  for (const std::int64_t vocabulary : {2, 4, 9}) {
    torch::manual_seed(1);
    const std::vector<double> probabilities = successor_probabilities(vocabulary);
    double loss = 0, count = 0;
    for (const auto& [token, followers] : pairs_in(tokens(200, 50, vocabulary))) {
      std::vector<double> frequencies;
      double all = 0;
      for (const auto& [follower, times] : followers) {
        frequencies.push_back(times);
        all += times;
      }
      std::sort(frequencies.rbegin(), frequencies.rend());
      ASSERT_EQ(frequencies.size(), probabilities.size()) << "token " << token << " of " << vocabulary;
      EXPECT_NEAR(all, 200 * 50 / static_cast<double>(vocabulary), 0.2 * 200 * 50 / static_cast<double>(vocabulary));
      for (std::size_t i = 0; i < probabilities.size(); ++i) {
        EXPECT_NEAR(frequencies[i] / all, probabilities[i], 0.05) << "token " << token << " of " << vocabulary;
        loss -= frequencies[i] * std::log(probabilities[i]);
      }
      count += all;
    }
    EXPECT_NEAR(loss / count, chain_entropy(vocabulary), 0.03 * chain_entropy(vocabulary));
  }
}

TEST(Tokens, AnotherSeedIsAnotherChain) {
  const auto drawn = [](std::uint64_t seed) {
    torch::manual_seed(seed);
    return pairs_in(tokens(50, 50, 30));
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1)[0], drawn(2)[0]);
}

TEST(Tokens, RefuseSizesBelowOne) {
  EXPECT_THROW(tokens(0, 1, 1), UsageError);
  EXPECT_THROW(tokens(1, 0, 1), UsageError);
  EXPECT_THROW(tokens(1, 1, 0), UsageError);
  EXPECT_EQ(tokens(1, 1, 1).targets.item<std::int64_t>(), 0);
}

}  // namespace
}  // namespace lockstep::data
