#include "lockstep/collectives/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "lockstep/collectives/kernels.h"

namespace lockstep::collectives {
namespace {

TEST(Half, EveryFloat16SurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 value{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(to_float(to_float16(wide))));
    else
      ASSERT_EQ(to_float16(wide).bits, value.bits) << bits;
  }
}

TEST(Half, EveryBFloat16SurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(wide))));
    else
      ASSERT_EQ(to_bfloat16(wide).bits, value.bits) << bits;
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_float16(2049.0F)), 2048.0F);  // half way, to even
  EXPECT_EQ(to_float(to_float16(2051.0F)), 2052.0F);
  EXPECT_EQ(to_float(to_float16(65519.0F)), 65504.0F);
  EXPECT_TRUE(std::isinf(to_float(to_float16(65520.0F))));
  EXPECT_EQ(to_float(to_float16(std::ldexp(1.0F, -25))), 0.0F);  // half of the least: to even, which is zero
  EXPECT_EQ(to_float(to_float16(std::ldexp(1.5F, -25))), std::ldexp(1.0F, -24));
  EXPECT_EQ(to_float(to_bfloat16(257.0F)), 256.0F);
  EXPECT_EQ(to_float(to_bfloat16(259.0F)), 260.0F);
}

// Both builds of the loops must give the same bits.
TEST(Reduce, GivesTheSameBitsForEveryVectorWidth) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this machine has no AVX2";
  std::mt19937 random(7);
  for (const DType dtype : all_dtypes())
    for (const ReduceOp op : all_reduce_ops()) {
      if (op == ReduceOp::mean && is_integer(dtype)) continue;
      for (const std::size_t count : {1, 7, 64, 1000})
        for (const std::size_t sources : {1, 2, 3, 5})
          for (const std::size_t destinations : {1, 2, 3}) {
            std::vector<std::vector<std::byte>> memory(sources);
            std::vector<const std::byte*> from;
            for (auto& buffer : memory) {
              buffer.resize(count * bytes_per_element(dtype));
              for (auto& byte : buffer) byte = static_cast<std::byte>(random());
              if (dtype == DType::float32 || dtype == DType::float64)  // numbers: a NaN's payload may differ
                for (std::size_t i = 0; i < count; ++i) {
                  const double x = static_cast<double>(static_cast<int>(random() % 2001) - 1000) / 7;
                  const auto f = static_cast<float>(x);
                  if (dtype == DType::float32)
                    std::memcpy(&buffer[i * 4], &f, 4);
                  else
                    std::memcpy(&buffer[i * 8], &x, 8);
                }
              if (dtype == DType::float16 || dtype == DType::bfloat16)
                for (std::size_t i = 0; i < count; ++i) buffer[2 * i + 1] &= std::byte{0xbb};
              from.push_back(buffer.data());
            }
            std::array<std::vector<std::byte>, 2> results;
            for (const bool wide : {false, true}) {
              std::vector<std::vector<std::byte>> out(destinations,
                                                      std::vector<std::byte>(count * bytes_per_element(dtype)));
              std::vector<std::byte*> to;
              for (auto& buffer : out) to.push_back(buffer.data());
              const Job job{to.data(), to.size(), from.data(), from.size(),
                            count,     dtype,     op,          op == ReduceOp::mean ? 3 : 1};
              wide ? reduce_avx2(job) : reduce_baseline(job);
              for (const auto& buffer : out) ASSERT_TRUE(buffer == out[0]);
              results[wide] = out[0];
            }
            ASSERT_TRUE(results[0] == results[1])
                << name_of(dtype) << " " << name_of(op) << ", " << count << " elements of " << sources;
          }
    }
#else
  GTEST_SKIP() << "one width only";
#endif
}

template <typename T>
T reduced(std::vector<T> values, ReduceOp op, int divisor = 1) {
  std::vector<const std::byte*> sources;
  for (const T& value : values) sources.push_back(reinterpret_cast<const std::byte*>(&value));
  T result{};
  std::byte* const destinations[] = {reinterpret_cast<std::byte*>(&result)};
  reduce(destinations, sources, 1, DTypeOf<T>::value, op, divisor);
  return result;
}

TEST(Reduce, IntegersWrapAndCompareWithTheirSign) {
  EXPECT_EQ(reduced<std::int8_t>({127, 1}, ReduceOp::sum), -128);
  EXPECT_EQ(reduced<std::uint8_t>({200, 100}, ReduceOp::sum), 44);
  EXPECT_EQ(reduced<std::int32_t>({std::numeric_limits<std::int32_t>::max(), 1}, ReduceOp::sum),
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(reduced<std::int8_t>({-5, 3, 2}, ReduceOp::min), -5);
  EXPECT_EQ(reduced<std::int64_t>({-5, 3, 2}, ReduceOp::max), 3);
  EXPECT_EQ(reduced<std::uint8_t>({250, 3}, ReduceOp::min), 3);
}

TEST(Reduce, HalvesAreSummedInFloatAndRoundedOnce) {
  // 2048 + 1 + 1: in float16 each 1 would be lost.
  const auto half = [](float x) { return to_float16(x); };
  EXPECT_EQ(to_float(reduced<Float16>({half(2048), half(1), half(1)}, ReduceOp::sum)), 2050.0F);
  EXPECT_EQ(to_float(reduced<Float16>({half(60000), half(60000), half(-60000)}, ReduceOp::sum)), 60000.0F);
}

TEST(Reduce, ANanWinsInMinAndMaxWhereverItStands) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    EXPECT_TRUE(std::isnan(reduced<float>({nan, 1, 2}, op)));
    EXPECT_TRUE(std::isnan(reduced<float>({1, nan, 2}, op)));
    EXPECT_TRUE(std::isnan(reduced<float>({1, 2, nan}, op)));
  }
}

TEST(Reduce, AMeanIsTheSumDividedNotTimesTheReciprocal) {
  EXPECT_EQ(reduced<float>({1, 2, 2}, ReduceOp::mean, 3), 5.0F / 3.0F);
  EXPECT_EQ(reduced<float>({0.1F, 0.2F, 0.4F}, ReduceOp::mean, 3), (0.1F + 0.2F + 0.4F) / 3.0F);
}

}  // namespace
}  // namespace lockstep::collectives
