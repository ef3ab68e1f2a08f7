#include "lockstep/measure/exact_values.h"

#include <algorithm>
#include <bit>

#include "lockstep/collectives/reduce.h"

namespace lockstep::measure {
namespace {

// Whole numbers up to this one are exact in the type. (Integers that become larger wrap in the same way in any order.)
std::uint32_t largest_exact(DType dtype) {
  switch (dtype) {
    case DType::bfloat16:
      return 256;
    case DType::float16:
      return 2048;
    case DType::int8:
    case DType::uint8:
      return 127;
    default:
      return 1U << 20;
  }
}

std::uint32_t scramble(std::uint64_t index) {
  auto x = static_cast<std::uint32_t>(index ^ (index >> 32)) * 0x9e3779b1U;
  x = (x ^ (x >> 15)) * 0x85ebca77U;
  return x ^ (x >> 13);
}

template <typename T>
T stored(std::uint64_t number, int divisor) {
  if constexpr (std::is_same_v<T, Float16>)
    return collectives::to_float16(static_cast<float>(number) / static_cast<float>(divisor));
  else if constexpr (std::is_same_v<T, BFloat16>)
    return collectives::to_bfloat16(static_cast<float>(number) / static_cast<float>(divisor));
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(number) / static_cast<T>(divisor);
  else
    return static_cast<T>(number);
}

template <typename Body>
auto with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::float64:
      return body(double{});
    case DType::float16:
      return body(Float16{});
    case DType::bfloat16:
      return body(BFloat16{});
    case DType::int8:
      return body(std::int8_t{});
    case DType::int32:
      return body(std::int32_t{});
    case DType::int64:
      return body(std::int64_t{});
    case DType::uint8:
      return body(std::uint8_t{});
    case DType::float32:
      break;
  }
  return body(float{});
}

// Bits are compared, because == does not tell -0 from 0.
template <typename T>
auto bits_of(const T& value) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<std::uint64_t>(value);
  else if constexpr (sizeof(T) == 4)
    return std::bit_cast<std::uint32_t>(value);
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<std::uint16_t>(value);
  else
    return std::bit_cast<std::uint8_t>(value);
}

// Elements of `buffer` that differ, bit for bit, from `expected(i)` as it would be stored.
template <typename Expected>
std::size_t count_wrong(ConstBuffer buffer, int divisor, Expected expected) {
  return with_type(buffer.dtype, [&](auto type) {
    using T = decltype(type);
    const auto* elements = reinterpret_cast<const T*>(buffer.data);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < buffer.count; ++i) {
      const T want = stored<T>(expected(i), divisor);
      wrong += bits_of(elements[i]) != bits_of(want) ? 1 : 0;
    }
    return wrong;
  });
}

}  // namespace

ExactValues::ExactValues(ReduceOp op, DType dtype, int ranks) : op_(op), ranks_(ranks) {
  const bool sums = op == ReduceOp::sum || op == ReduceOp::mean;
  choices_ = std::max(1U, largest_exact(dtype) / (sums ? static_cast<std::uint32_t>(ranks) : 1U)) + 1;
}

std::uint32_t ExactValues::number(Rank owner, std::size_t index) const {
  const auto rank = static_cast<std::uint32_t>(owner);
  const std::uint32_t mixed = scramble(index);
  // The product over all ranks consists of ones and at most seven twos, so that 16-bit types hold it.
  if (op_ == ReduceOp::product) return (mixed + rank) % static_cast<std::uint32_t>(ranks_) < mixed % 8 ? 2 : 1;
  return static_cast<std::uint32_t>((std::uint64_t{scramble(mixed + rank + 1)} * choices_) >> 32);
}

std::uint64_t ExactValues::reduced(std::size_t index) const {
  std::uint64_t result = number(0, index);
  for (Rank rank = 1; rank < ranks_; ++rank) {
    const std::uint64_t next = number(rank, index);
    switch (op_) {
      case ReduceOp::sum:
      case ReduceOp::mean:
        result += next;
        break;
      case ReduceOp::min:
        result = std::min(result, next);
        break;
      case ReduceOp::max:
        result = std::max(result, next);
        break;
      case ReduceOp::product:
        result *= next;
        break;
    }
  }
  return result;
}

void ExactValues::fill(Buffer buffer, Rank owner, std::size_t first) const {
  with_type(buffer.dtype, [&](auto type) {
    using T = decltype(type);
    auto* elements = reinterpret_cast<T*>(buffer.data);
    for (std::size_t i = 0; i < buffer.count; ++i) elements[i] = stored<T>(number(owner, first + i), 1);
  });
}

std::size_t ExactValues::wrong(ConstBuffer buffer, Rank owner, std::size_t first) const {
  return count_wrong(buffer, 1, [&](std::size_t i) { return std::uint64_t{number(owner, first + i)}; });
}

std::size_t ExactValues::wrong_reduced(ConstBuffer buffer, std::size_t first) const {
  const int divisor = op_ == ReduceOp::mean ? ranks_ : 1;
  return count_wrong(buffer, divisor, [&](std::size_t i) { return reduced(first + i); });
}

}  // namespace lockstep::measure
