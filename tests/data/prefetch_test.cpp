// Values made one ahead: in order, never more than one, with errors in their place, and an end at any time.
#include "lockstep/data/prefetch.h"
#include "lockstep/base/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>

namespace lockstep::data {
namespace {

using namespace std::chrono_literals;

template <typename Condition>
bool becomes_true(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return condition();
}

std::function<std::optional<int>()> count_to(int last) {
  return [last, value = 0]() mutable { return value < last ? std::optional(value++) : std::nullopt; };
}

TEST(Prefetch, GivesAllInOrderAndThenNothing) {
  Prefetch<int> ahead(count_to(1000));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(ahead.next(), i);
  EXPECT_EQ(ahead.next(), std::nullopt);
  EXPECT_EQ(ahead.next(), std::nullopt);
}

TEST(Prefetch, GivesNothingAtOnce) {
  Prefetch<int> ahead(count_to(0));
  EXPECT_EQ(ahead.next(), std::nullopt);
}

TEST(Prefetch, IsOneAheadAndNotTwo) {
  std::atomic<int> made = 0;
  Prefetch<int> ahead([&] { return std::optional(++made); });
  EXPECT_TRUE(becomes_true([&] { return made == 1; })) << "made before it is asked for";
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(ahead.next(), 1);
  EXPECT_TRUE(becomes_true([&] { return made == 2; }));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(made, 2);
}

TEST(Prefetch, ThrowsInThePlaceOfTheValue) {
  Prefetch<int> ahead([value = 0]() mutable {
    if (value == 2) throw std::runtime_error("no third");
    return std::optional(value++);
  });
  EXPECT_EQ(ahead.next(), 0);
  EXPECT_EQ(ahead.next(), 1);
  for (int i = 0; i < 2; ++i) {
    try {
      ahead.next();
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "no third");
    }
  }
}

TEST(Prefetch, CanBeDestroyedAtAnyTime) {
  for (int taken = 0; taken < 4; ++taken)
    for (const auto pause : {0us, 50us, 500us}) {
      Prefetch<int> ahead(count_to(3));
      for (int i = 0; i < taken; ++i) ahead.next();
      std::this_thread::sleep_for(pause);
    }
}

TEST(Prefetch, WaitsForAMakeThatIsUnderWay) {
  std::atomic<bool> inside = false, done = false;
  auto ahead = std::make_unique<Prefetch<int>>([&]() -> std::optional<int> {
    inside = true;
    std::this_thread::sleep_for(30ms);
    done = true;
    return {};
  });
  ASSERT_TRUE(becomes_true([&] { return inside.load(); }));
  ahead.reset();
  EXPECT_TRUE(done);
}

TEST(Prefetch, AnErrorThatNobodyAsksForIsNobodysBusiness) {
  std::atomic<bool> inside = false;
  Prefetch<int> ahead([&]() -> std::optional<int> {
    inside = true;
    throw std::runtime_error("unseen");
  });
  ASSERT_TRUE(becomes_true([&] { return inside.load(); }));
}

}  // namespace
}  // namespace lockstep::data
