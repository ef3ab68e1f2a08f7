// Batches of an epoch, with and without a thread.
#include "lockstep/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>

#include "lockstep/error.h"

namespace lockstep::data {
namespace {

// Sample i is an image full of i with label i.
Dataset numbered(std::int64_t count) {
  const torch::Tensor numbers = torch::arange(count, torch::kInt64);
  return {.images = numbers.to(torch::kFloat32).view({count, 1, 1, 1}).repeat({1, 1, 2, 2}), .labels = numbers};
}

std::vector<std::int64_t> labels_of(const Batch& batch) {
  const std::int64_t* data = batch.targets.data_ptr<std::int64_t>();
  return {data, data + batch.targets.numel()};
}

class EveryLoader : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Loader> loader(const Fetch& fetch, const DistributedSampler& sampler, std::int64_t batch) const {
    return std::make_unique<Loader>(fetch, sampler, LoaderOptions{.batch = batch, .prefetch = GetParam()});
  }
};
INSTANTIATE_TEST_SUITE_P(Prefetch, EveryLoader, ::testing::Bool());

TEST_P(EveryLoader, GivesTheSamplersSamplesInOrder) {
  const Dataset dataset = numbered(50);
  DistributedSampler sampler(50, 1, 2, {.seed = 4});
  const auto batches = loader(fetch_from(dataset), sampler, 12);
  for (const std::int64_t epoch : {0, 1, 5}) {
    batches->start_epoch(epoch);
    std::vector<std::int64_t> seen;
    std::int64_t steps = 0;
    while (const auto batch = batches->next()) {
      ++steps;
      for (const std::int64_t label : labels_of(*batch)) seen.push_back(label);
      EXPECT_TRUE(torch::equal(batch->inputs.select(3, 1).select(2, 1).flatten().to(torch::kInt64), batch->targets));
    }
    sampler.set_epoch(epoch);
    EXPECT_EQ(seen, sampler.indices());
    EXPECT_EQ(steps, batches->steps());
    EXPECT_FALSE(batches->next()) << "still over";
  }
}

TEST_P(EveryLoader, KnowsTheWholeBatch) {
  const Dataset dataset = numbered(23);
  std::vector<double> shares(3);
  for (Rank rank = 0; rank < 3; ++rank) {
    const auto batches =
        loader(fetch_from(dataset), DistributedSampler(23, rank, 3, {.remainder = Remainder::uneven}), 10);
    for (const std::int64_t whole : {10, 10, 3}) {
      const auto batch = batches->next();
      ASSERT_TRUE(batch);
      EXPECT_EQ(batch->whole, whole);
      shares[static_cast<std::size_t>(whole == 3 ? 2 : 0)] += batch->share();
    }
    EXPECT_FALSE(batches->next());
  }
  EXPECT_NEAR(shares[0], 2, 1e-12) << "the shares of a step add up to 1";
  EXPECT_NEAR(shares[2], 1, 1e-12);
}

// Over all ranks, what is not padding is every sample exactly once: an accuracy counts right.
TEST_P(EveryLoader, MarksThePadding) {
  const Dataset dataset = numbered(22);
  std::multiset<std::int64_t> seen;
  std::int64_t padding = 0;
  for (Rank rank = 0; rank < 4; ++rank) {
    const auto batches = loader(fetch_from(dataset), DistributedSampler(22, rank, 4, {.remainder = Remainder::pad}), 8);
    while (const auto batch = batches->next()) {
      const std::vector<std::int64_t> labels = labels_of(*batch);
      seen.insert(labels.begin(), labels.end() - batch->padding);
      padding += batch->padding;
    }
  }
  EXPECT_EQ(padding, 2);
  EXPECT_EQ(seen.size(), 22U);
  EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 22U);
}

TEST_P(EveryLoader, LeavesAnEpochInTheMiddle) {
  const Dataset dataset = numbered(40);
  const DistributedSampler sampler(40, 0, 1, {.shuffle = false});
  const auto batches = loader(fetch_from(dataset), sampler, 4);
  for (int taken = 0; taken < 4; ++taken) {
    batches->start_epoch(taken);
    for (int i = 0; i < taken; ++i) batches->next();
  }
  batches->start_epoch(9);
  EXPECT_EQ(labels_of(*batches->next()), (std::vector<std::int64_t>{0, 1, 2, 3}));
}

TEST_P(EveryLoader, ThrowsWhatFetchThrows) {
  const Dataset dataset = numbered(12);
  const Fetch good = fetch_from(dataset);
  const auto batches = loader(
      [&](std::span<const std::int64_t> indices) {
        if (indices[0] == 8) throw std::runtime_error("sample 8 is unreadable");
        return good(indices);
      },
      DistributedSampler(12, 0, 1, {.shuffle = false}), 4);
  EXPECT_TRUE(batches->next());
  EXPECT_TRUE(batches->next());
  EXPECT_THROW(batches->next(), std::runtime_error);
  EXPECT_THROW(batches->next(), std::runtime_error);
  batches->start_epoch(1);
  EXPECT_TRUE(batches->next()) << "a new epoch starts over";
}

TEST_P(EveryLoader, RefusesSamplesThatTheDataSetLacks) {
  const auto batches = loader(fetch_from(numbered(10)), DistributedSampler(12, 0, 1, {.shuffle = false}), 12);
  EXPECT_THROW(batches->next(), UsageError);
}

TEST_P(EveryLoader, ARankMayHaveNoRowInTheLastStep) {
  const Dataset dataset = numbered(9);
  const auto batches = loader(fetch_from(dataset), DistributedSampler(9, 1, 2, {.remainder = Remainder::uneven}), 8);
  EXPECT_EQ(batches->next()->rows(), 4);
  const auto last = batches->next();
  EXPECT_EQ(last->rows(), 0);
  EXPECT_EQ(last->whole, 1);
  EXPECT_EQ(last->inputs.sizes().vec(), (std::vector<std::int64_t>{0, 1, 2, 2}));
}

TEST(Loader, RefusesABatchSmallerThanTheRanks) {
  const DistributedSampler sampler(100, 0, 4);
  EXPECT_THROW(Loader(fetch_from(numbered(100)), sampler, {.batch = 3}), UsageError);
}

// While a batch is worked on, the next is made.
TEST(Loader, WorksAhead) {
  const Dataset dataset = numbered(40);
  const Fetch quick = fetch_from(dataset);
  std::thread::id maker;
  Loader loader(
      [&](std::span<const std::int64_t> indices) {
        maker = std::this_thread::get_id();
        return quick(indices);
      },
      DistributedSampler(40, 0, 1), {.batch = 4});
  EXPECT_TRUE(loader.next());
  EXPECT_NE(maker, std::this_thread::get_id());
}

}  // namespace
}  // namespace lockstep::data
