// The vocabulary of the collectives: operations, reductions, element types, algorithms and buffers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/types.h"

namespace lockstep {

enum class Op : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  scatter,
  gather,
  all_gather,
  reduce_scatter,
  all_to_all,
  barrier,
};

enum class ReduceOp : std::uint8_t { sum, mean, min, max, product };

enum class DType : std::uint8_t { float32, float64, float16, bfloat16, int8, int32, int64, uint8 };

// `automatic` lets Lockstep choose: `direct` in shared memory, otherwise by operation, size and
// number of ranks.
enum class Algorithm : std::uint8_t {
  automatic,
  naive,
  exchange,
  tree,
  ring,
  halving_doubling,
  ordered,
  direct,
};

// 16-bit floating-point numbers as they are stored in memory. Arithmetic on them is done in float32.
struct Float16 {
  std::uint16_t bits = 0;
};
struct BFloat16 {
  std::uint16_t bits = 0;
};

const char* name_of(Op op);
const char* name_of(ReduceOp op);
const char* name_of(DType dtype);
const char* name_of(Algorithm algorithm);  // "auto" for automatic

// Parse a name. They throw UsageError if it is unknown; the error names `what`, the flag or variable that held the
// name, and lists the choices.
Op parse_op(std::string_view what, std::string_view text);
ReduceOp parse_reduce_op(std::string_view what, std::string_view text);
DType parse_dtype(std::string_view what, std::string_view text);
Algorithm parse_algorithm(std::string_view what, std::string_view text);

std::span<const Op> all_ops();
std::span<const ReduceOp> all_reduce_ops();
std::span<const DType> all_dtypes();
std::span<const Algorithm> all_algorithms();  // all except automatic

std::size_t bytes_per_element(DType dtype);
bool is_integer(DType dtype);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::float16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::int8;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};

template <typename T>
concept Element = requires {
  DTypeOf<std::remove_const_t<T>>::value;
};

// A view of elements of one type. It can be made from a std::span or a std::vector, and does not own the memory.
struct ConstBuffer {
  const std::byte* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::float32;

  ConstBuffer() = default;
  ConstBuffer(const void* memory, std::size_t elements, DType type)
      : data(static_cast<const std::byte*>(memory)), count(elements), dtype(type) {}
  template <Element T>
  ConstBuffer(std::span<T> elements)  // NOLINT: implicit on purpose
      : ConstBuffer(elements.data(), elements.size(), DTypeOf<std::remove_const_t<T>>::value) {}
  template <Element T>
  ConstBuffer(const std::vector<T>& elements) : ConstBuffer(std::span<const T>(elements)) {}  // NOLINT
  std::size_t bytes() const { return count * bytes_per_element(dtype); }
};

// The same for memory that may be written.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::float32;

  Buffer() = default;
  Buffer(void* memory, std::size_t elements, DType type)
      : data(static_cast<std::byte*>(memory)), count(elements), dtype(type) {}
  template <Element T>
  requires(!std::is_const_v<T>) Buffer(std::span<T> elements)  // NOLINT: implicit on purpose
      : Buffer(elements.data(), elements.size(), DTypeOf<T>::value) {}
  template <Element T>
  Buffer(std::vector<T>& elements) : Buffer(std::span<T>(elements)) {}  // NOLINT
  operator ConstBuffer() const { return {data, count, dtype}; }         // NOLINT
  std::size_t bytes() const { return count * bytes_per_element(dtype); }
};

// The position of the first element of chunk `index`, if `count` elements are divided into `chunks` chunks. The first
// `count` mod `chunks` chunks have one element more than the others.
constexpr std::size_t chunk_begin(std::size_t count, int chunks, int index) {
  const auto n = static_cast<std::size_t>(chunks);
  const auto i = static_cast<std::size_t>(index);
  return count / n * i + (i < count % n ? i : count % n);
}
constexpr std::size_t chunk_size(std::size_t count, int chunks, int index) {
  return chunk_begin(count, chunks, index + 1) - chunk_begin(count, chunks, index);
}

}  // namespace lockstep
