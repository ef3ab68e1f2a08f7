// Steps that are remembered: the memory of a long run, and the parts of a typical step.
#include "lockstep/train/step_log.h"

#include <gmock/gmock.h>

namespace lockstep::train {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

StepLog of_steps(std::int64_t count, std::size_t most) {
  StepLog log(most);
  for (std::int64_t step = 0; step < count; ++step)
    log.add({.loss = static_cast<double>(step), .seconds = 1 + static_cast<double>(step)});
  return log;
}

TEST(StepLog, FewStepsAreAllThere) {
  const StepLog log = of_steps(4, 4);
  EXPECT_EQ(log.made(), 4);
  EXPECT_EQ(log.every(), 1);
  EXPECT_THAT(log.losses(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(log.after(1).size(), 3U);
  EXPECT_EQ(log.after(1)[0].loss, 1);
}

TEST(StepLog, ManyStepsTakeNoMoreMemory) {
  EXPECT_THAT(of_steps(5, 4).losses(), ElementsAre(0, 2, 4));
  EXPECT_THAT(of_steps(6, 4).losses(), ElementsAre(0, 2, 4, 5));  // the last one always
  EXPECT_THAT(of_steps(9, 4).losses(), ElementsAre(0, 4, 8));
  EXPECT_THAT(of_steps(12, 4).losses(), ElementsAre(0, 4, 8, 11));
  for (const std::int64_t steps : {1, 7, 63, 64, 65, 1000, 1'000'000}) {
    const StepLog log = of_steps(steps, 64);
    EXPECT_EQ(log.made(), steps);
    const auto losses = log.losses();
    ASSERT_LE(losses.size(), 65U);
    EXPECT_GE(losses.size(), std::min<std::size_t>(static_cast<std::size_t>(steps), 32));
    for (std::size_t i = 0; i + 1 < losses.size(); ++i)
      ASSERT_EQ(losses[i], static_cast<double>(log.every() * static_cast<std::int64_t>(i)));
    EXPECT_EQ(losses.back(), static_cast<double>(steps - 1));
  }
}

TEST(StepLog, AnOddLimit) { EXPECT_THAT(of_steps(6, 5).losses(), ElementsAre(0, 2, 4, 5)); }

TEST(StepLog, StepsThatAreNotTimed) {
  const StepLog log = of_steps(9, 4);  // 0, 4, 8
  EXPECT_EQ(log.after(0).size(), 3U);
  EXPECT_EQ(log.after(1).size(), 2U);
  EXPECT_EQ(log.after(4)[0].loss, 4);
  EXPECT_EQ(log.after(5)[0].loss, 8);
  EXPECT_TRUE(of_steps(0, 4).after(0).empty());
  EXPECT_EQ(of_steps(8, 4).after(7)[0].loss, 7);  // only the last one is after them
}

TEST(Typical, TheHalfAroundTheMedian) {
  EXPECT_THAT(typical({5}), ElementsAre(0));
  EXPECT_THAT(typical({1, 900, 3, 2, 2.5}), UnorderedElementsAre(2, 3, 4));
  EXPECT_THAT(typical({1, 1, 1, 1}), UnorderedElementsAre(0, 1));
}

}  // namespace
}  // namespace lockstep::train
