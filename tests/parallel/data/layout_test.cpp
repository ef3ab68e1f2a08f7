#include "lockstep/parallel/data/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace lockstep::parallel {
namespace {

std::vector<std::size_t> backwards(std::size_t n) {
  std::vector<std::size_t> order(n);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

TEST(Layout, FollowsPyTorchsSizes) {  // 1 MiB first, then 25, closed when reached
  const std::vector<Item> items(40, {"w", std::size_t{1} << 20, c10::kFloat});  // 4 MiB each
  const Layout layout = make_layout(items, backwards(40), {std::size_t{1} << 20, std::size_t{25} << 20, 1});
  ASSERT_EQ(layout.buckets.size(), 7U);
  EXPECT_EQ(layout.buckets[0].slots.size(), 1U);
  for (std::size_t i = 1; i < 6; ++i) EXPECT_EQ(layout.buckets[i].slots.size(), 7U);
  EXPECT_EQ(layout.buckets[6].slots.size(), 4U);
  EXPECT_EQ(layout.buckets[0].slots[0].item, 39U);
  EXPECT_EQ(layout.bytes, std::size_t{160} << 20);
}

// Whatever the items and the order: each once, on a cache line of its own, inside its bucket, types apart, and in a
// size that only depends on the items.
TEST(Layout, HoldsItsInvariantsForRandomItems) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Item> items;
    for (int i = 0; i < static_cast<int>(random() % 40); ++i)
      items.push_back(
          {fmt::format("p{}", i), random() % 300, std::array{c10::kFloat, c10::kDouble, c10::kHalf}[random() % 3]});
    auto order = backwards(items.size());
    const LayoutOptions options{1 + random() % 500, 1 + random() % 2000, round % 2 == 0 ? 1 : 3};
    const Layout first = make_layout(items, order, options);
    std::shuffle(order.begin(), order.end(), random);
    const Layout layout = make_layout(items, order, options);
    if (options.chunks == 1) {
      EXPECT_EQ(first.bytes, layout.bytes);
    }
    std::vector<int> times(items.size());
    std::size_t end = 0;
    std::size_t last_of_previous = 0;
    for (const BucketLayout& bucket : layout.buckets) {
      EXPECT_EQ(bucket.offset, end);
      EXPECT_EQ(bucket.bytes() % (64 * static_cast<std::size_t>(options.chunks)), 0U);
      std::size_t at = bucket.offset;
      for (const Slot& slot : bucket.slots) {
        ++times[slot.item];
        EXPECT_EQ(items[slot.item].dtype, bucket.dtype);
        EXPECT_EQ(items[slot.item].count, slot.count);
        EXPECT_EQ(slot.offset % 64, 0U);
        EXPECT_GE(slot.offset, at);
        at = slot.offset + slot.count * c10::elementSize(bucket.dtype);
      }
      end = bucket.offset + bucket.bytes();
      EXPECT_LE(at, end);
      const auto last =
          static_cast<std::size_t>(std::find(order.begin(), order.end(), bucket.slots.back().item) - order.begin());
      EXPECT_GE(last, last_of_previous) << "a bucket that is full later comes first";
      last_of_previous = last;
    }
    EXPECT_EQ(end, layout.bytes);
    EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
  }
}

}  // namespace
}  // namespace lockstep::parallel
