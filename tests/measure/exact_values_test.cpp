#include "lockstep/measure/exact_values.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/collectives/reduce.h"

namespace lockstep::measure {
namespace {

constexpr std::size_t kCount = 1000;

struct Data {
  std::vector<std::byte> bytes;
  Buffer buffer;
  explicit Data(DType dtype) : bytes(kCount * bytes_per_element(dtype)), buffer(bytes.data(), kCount, dtype) {}
};

bool has_mean(DType dtype, ReduceOp op) { return op != ReduceOp::mean || !is_integer(dtype); }

// In the order of the ranks and backwards, rounded to the type after every step: what any algorithm may do.
TEST(ExactValues, AreRightInAnyOrderForEveryTypeAndOp) {
  for (const DType dtype : all_dtypes())
    for (const ReduceOp op : all_reduce_ops())
      for (const int ranks : {1, 2, 3, 9}) {
        if (!has_mean(dtype, op)) continue;
        const ExactValues values(op, dtype, ranks);
        for (const bool backwards : {false, true}) {
          Data sum(dtype);
          values.fill(sum.buffer, backwards ? ranks - 1 : 0);
          for (int i = 1; i < ranks; ++i) {
            Data next(dtype);
            values.fill(next.buffer, backwards ? ranks - 1 - i : i);
            const int divisor = op == ReduceOp::mean && i == ranks - 1 ? ranks : 1;
            collectives::reduce_into(sum.buffer.data, next.buffer.data, kCount, dtype, op, divisor);
          }
          EXPECT_EQ(values.wrong_reduced(sum.buffer), 0U) << name_of(dtype) << " " << name_of(op) << " " << ranks;
        }
      }
}

TEST(ExactValues, OneWrongElementIsCounted) {
  for (const DType dtype : all_dtypes()) {
    const ExactValues values(ReduceOp::sum, dtype, 2);
    Data data(dtype);
    values.fill(data.buffer, 1);
    EXPECT_EQ(values.wrong(data.buffer, 1), 0U);
    data.bytes[7 * bytes_per_element(dtype)] ^= std::byte{1};
    EXPECT_EQ(values.wrong(data.buffer, 1), 1U) << name_of(dtype);
  }
}

TEST(ExactValues, AnotherRankAnotherPlaceAndAMissingShareShow) {
  const ExactValues values(ReduceOp::sum, DType::float32, 3);
  std::vector<float> data(kCount);
  values.fill(data, 1);
  EXPECT_GT(values.wrong(data, 2), kCount * 9 / 10);
  EXPECT_GT(values.wrong(data, 1, 1), kCount * 9 / 10);  // one element further
  EXPECT_GT(values.wrong_reduced(data), kCount * 9 / 10);
  EXPECT_EQ(values.wrong(ConstBuffer(data.data() + 10, 20, DType::float32), 1, 10), 0U);
}

TEST(ExactValues, ZerosAreNotRight) {
  for (const ReduceOp op : all_reduce_ops()) {
    const ExactValues values(op, DType::float32, 2);
    EXPECT_GT(values.wrong_reduced(std::vector<float>(kCount)), kCount / 2) << name_of(op);
  }
}

}  // namespace
}  // namespace lockstep::measure
