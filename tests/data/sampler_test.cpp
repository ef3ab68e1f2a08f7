// Who sees which samples. That the order is PyTorch's is in python_test.cpp.
#include "lockstep/data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lockstep/error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr SamplerOptions kInOrder{.shuffle = false};

SamplerOptions in_order(Remainder remainder) { return {.shuffle = false, .remainder = remainder}; }

TEST(Sampler, DealsRoundTheRanks) {
  EXPECT_THAT(DistributedSampler(7, 0, 3, in_order(Remainder::uneven)).indices(), ElementsAre(0, 3, 6));
  EXPECT_THAT(DistributedSampler(7, 1, 3, in_order(Remainder::uneven)).indices(), ElementsAre(1, 4));
  EXPECT_THAT(DistributedSampler(7, 1, 3, in_order(Remainder::drop)).indices(), ElementsAre(1, 4));
  EXPECT_THAT(DistributedSampler(7, 0, 3, in_order(Remainder::drop)).indices(), ElementsAre(0, 3));
  EXPECT_THAT(DistributedSampler(7, 1, 3, in_order(Remainder::pad)).indices(), ElementsAre(1, 4, 0));
  EXPECT_THAT(DistributedSampler(7, 2, 3, in_order(Remainder::pad)).indices(), ElementsAre(2, 5, 1));
  EXPECT_THAT(DistributedSampler(2, 4, 5, kInOrder).indices(), ElementsAre(0)) << "pads more than once round";
}

TEST(Sampler, KnowsWhatIsPadding) {
  EXPECT_EQ(DistributedSampler(7, 0, 3, kInOrder).padding(), 0);
  EXPECT_EQ(DistributedSampler(7, 1, 3, kInOrder).padding(), 1);
  EXPECT_EQ(DistributedSampler(7, 2, 3, kInOrder).padding(), 1);
  EXPECT_EQ(DistributedSampler(9, 2, 3, kInOrder).padding(), 0);
  EXPECT_EQ(DistributedSampler(7, 2, 3, in_order(Remainder::uneven)).padding(), 0);
  EXPECT_EQ(DistributedSampler(7, 2, 3, in_order(Remainder::drop)).padding(), 0);
}

// Whatever the tail, without padding no sample is seen twice; nothing is missing but what `drop` drops.
TEST(Sampler, EverySampleOnce) {
  for (int ranks = 1; ranks <= 7; ++ranks)
    for (const std::int64_t n : {7, 8, 20, 21, 97})
      for (const Remainder remainder : {Remainder::drop, Remainder::pad, Remainder::uneven}) {
        std::multiset<std::int64_t> seen;
        std::int64_t all = 0;
        for (Rank rank = 0; rank < ranks; ++rank) {
          DistributedSampler sampler(n, rank, ranks, {.seed = 5, .remainder = remainder});
          sampler.set_epoch(2);
          std::vector<std::int64_t> mine = sampler.indices();
          ASSERT_EQ(static_cast<std::int64_t>(mine.size()), sampler.size());
          all += sampler.size();
          mine.resize(mine.size() - static_cast<std::size_t>(sampler.padding()));
          seen.insert(mine.begin(), mine.end());
          EXPECT_EQ(sampler.total(), DistributedSampler(n, 0, ranks, {.remainder = remainder}).total());
        }
        EXPECT_EQ(all, DistributedSampler(n, 0, ranks, {.remainder = remainder}).total());
        EXPECT_EQ(static_cast<std::int64_t>(seen.size()), remainder == Remainder::drop ? n - n % ranks : n);
        EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), seen.size());
      }
}

TEST(Sampler, TheOrderChangesWithTheEpochAndComesBack) {
  DistributedSampler sampler(100, 0, 2, {.seed = 3});
  const auto first = sampler.indices();
  sampler.set_epoch(1);
  const auto second = sampler.indices();
  EXPECT_NE(first, second);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.indices(), first);
  EXPECT_EQ(DistributedSampler(100, 0, 2, {.seed = 4}).indices(), second) << "seed + epoch is what counts";
}

TEST(Sampler, LeavesTheDefaultGeneratorAlone) {
  torch::manual_seed(9);
  const torch::Tensor expected = torch::randn(3);
  torch::manual_seed(9);
  DistributedSampler(100, 0, 2).indices();
  EXPECT_TRUE(torch::equal(torch::randn(3), expected));
}

// At every step all ranks together take what one process would.
TEST(Sampler, StepsTakeTheSinglesSamples) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (const std::int64_t n : {20, 23, 64})
      for (const std::int64_t batch : {5, 8, 12})
        for (const Remainder remainder : {Remainder::drop, Remainder::pad, Remainder::uneven}) {
          SCOPED_TRACE(fmt::format("{} ranks, {} samples, batches of {}", ranks, n, batch));
          const std::vector<std::int64_t> order = DistributedSampler(n, 0, 1, {.seed = 1}).indices();
          const std::int64_t total = DistributedSampler(n, 0, ranks, {.remainder = remainder}).total();
          const std::int64_t steps = DistributedSampler(n, 0, ranks, {.remainder = remainder}).steps(batch);
          EXPECT_EQ(steps, (total + batch - 1) / batch);
          for (std::int64_t step = 0; step < steps; ++step) {
            std::multiset<std::int64_t> expected, got;
            for (std::int64_t place = step * batch; place < std::min(total, (step + 1) * batch); ++place)
              expected.insert(order[static_cast<std::size_t>(place % n)]);
            for (Rank rank = 0; rank < ranks; ++rank) {
              const DistributedSampler sampler(n, rank, ranks, {.seed = 1, .remainder = remainder});
              const auto mine = sampler.indices();
              const Rows rows = sampler.rows_at(step, batch);
              got.insert(mine.begin() + rows.begin, mine.begin() + rows.end);
              EXPECT_EQ(sampler.whole_at(step, batch), static_cast<std::int64_t>(expected.size()));
            }
            EXPECT_EQ(got, expected) << "at step " << step;
          }
        }
}

TEST(Sampler, RefusesWhatCannotBe) {
  EXPECT_THROW(DistributedSampler(10, 2, 2), UsageError);
  EXPECT_THROW(DistributedSampler(10, -1, 2), UsageError);
  EXPECT_THROW(DistributedSampler(10, 0, 0), UsageError);
  EXPECT_THROW(DistributedSampler(0, 0, 1), UsageError);
  EXPECT_THROW(DistributedSampler(2, 0, 3, {.remainder = Remainder::drop}), UsageError);
  EXPECT_THROW(DistributedSampler(2, 0, 3, {.remainder = Remainder::uneven}), UsageError);
  EXPECT_THROW(DistributedSampler(10, 0, 4).steps(3), UsageError);
  EXPECT_THROW(DistributedSampler(10, 0, 2).rows_at(5, 2), UsageError);
}

TEST(Sampler, RemaindersByName) {
  EXPECT_EQ(kRemainders.parse("drop"), Remainder::drop);
  EXPECT_EQ(kRemainders.parse("pad"), Remainder::pad);
  EXPECT_EQ(kRemainders.parse("uneven"), Remainder::uneven);
  try {
    kRemainders.parse("unevn");
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("try: uneven"));
  }
}

}  // namespace
}  // namespace lockstep::data
