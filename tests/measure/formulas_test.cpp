#include "lockstep/measure/formulas.h"

#include <gtest/gtest.h>

#include "lockstep/collectives/plan.h"

namespace lockstep::measure {
namespace {

TEST(Formulas, BusBandwidthIsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Op::all_reduce, 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Op::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Op::all_reduce, 8), 1.75);
  for (const Op op : {Op::all_gather, Op::reduce_scatter, Op::gather, Op::scatter, Op::all_to_all}) {
    EXPECT_DOUBLE_EQ(bus_factor(op, 2), 0.5) << name_of(op);
    EXPECT_DOUBLE_EQ(bus_factor(op, 4), 0.75) << name_of(op);
  }
  for (const Op op : {Op::broadcast, Op::reduce}) EXPECT_DOUBLE_EQ(bus_factor(op, 5), 1.0) << name_of(op);
  EXPECT_DOUBLE_EQ(bus_factor(std::nullopt, 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Op::barrier, 3), 0.0);
}

TEST(Formulas, AWorldOfOneMovesNothing) {
  for (const Op op : all_ops()) EXPECT_DOUBLE_EQ(wire_bytes(op, 1, 100), 0) << name_of(op);
  EXPECT_DOUBLE_EQ(wire_bytes(std::nullopt, 1, 100), 0);
}

TEST(Formulas, AnAllReduceOverSharedMemoryReadsAndWritesEveryBufferOnce) {
  EXPECT_DOUBLE_EQ(memory_bytes(Op::all_reduce, 2, 100), 400);
  EXPECT_DOUBLE_EQ(memory_bytes(Op::all_reduce, 4, 100), 800);
}

// The plans are what is run: the closed formulas must say the same of the rank that has most.
TEST(Formulas, AllReduceCostsAreThoseOfThePlans) {
  for (const Algorithm algorithm : collectives::algorithms_of(Op::all_reduce))
    for (int p = 1; p <= 33; ++p) {
      const std::size_t count = 4 * 32 * static_cast<std::size_t>(p);  // p and the power of two below it divide it
      int steps = 0;
      int messages = 0;
      std::size_t elements = 0;
      for (Rank me = 0; me < p; ++me) {
        const auto cost = collectives::cost_of(collectives::make_plan(Op::all_reduce, algorithm, me, p), count);
        steps = std::max(steps, cost.steps);
        messages = std::max(messages, cost.messages);
        elements = std::max(elements, cost.elements);
      }
      const auto formula = all_reduce_cost(algorithm, p, static_cast<double>(count));
      EXPECT_EQ(formula.steps, steps) << name_of(algorithm) << ", p = " << p;
      EXPECT_EQ(formula.messages, messages) << name_of(algorithm) << ", p = " << p;
      EXPECT_DOUBLE_EQ(formula.bytes, static_cast<double>(elements)) << name_of(algorithm) << ", p = " << p;
    }
}

}  // namespace
}  // namespace lockstep::measure
