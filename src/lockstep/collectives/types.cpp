#include "lockstep/collectives/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The names in the order of the enumerators.
constexpr std::array kOps{"all_reduce", "reduce",         "broadcast",  "scatter", "gather",
                          "all_gather", "reduce_scatter", "all_to_all", "barrier"};
constexpr std::array kReduceOps{"sum", "mean", "min", "max", "product"};
constexpr std::array kDTypes{"float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"};
constexpr std::array kAlgorithms{"auto", "naive", "exchange", "tree", "ring", "halving_doubling", "ordered", "direct"};
constexpr std::array<std::size_t, 8> kBytes{4, 8, 2, 2, 1, 4, 8, 1};

template <typename E, std::size_t N>
const char* name_in(const std::array<const char*, N>& names, E value) {
  return names.at(static_cast<std::size_t>(value));
}

template <typename E, std::size_t N>
E parse_in(const std::array<const char*, N>& names, std::string_view what, std::string_view text) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) throw UsageError(fmt::format("{}: '{}' is none of {}", what, text, fmt::join(names, ", ")));
  return static_cast<E>(found - names.begin());
}

template <typename E, std::size_t N>
constexpr std::array<E, N> first(std::size_t from = 0) {
  std::array<E, N> values{};
  for (std::size_t i = 0; i < N; ++i) values[i] = static_cast<E>(i + from);
  return values;
}

}  // namespace

const char* name_of(Op op) { return name_in(kOps, op); }
const char* name_of(ReduceOp op) { return name_in(kReduceOps, op); }
const char* name_of(DType dtype) { return name_in(kDTypes, dtype); }
const char* name_of(Algorithm algorithm) { return name_in(kAlgorithms, algorithm); }

Op parse_op(std::string_view what, std::string_view text) { return parse_in<Op>(kOps, what, text); }
ReduceOp parse_reduce_op(std::string_view what, std::string_view text) {
  return parse_in<ReduceOp>(kReduceOps, what, text);
}
DType parse_dtype(std::string_view what, std::string_view text) { return parse_in<DType>(kDTypes, what, text); }
Algorithm parse_algorithm(std::string_view what, std::string_view text) {
  return parse_in<Algorithm>(kAlgorithms, what, text);
}

std::span<const Op> all_ops() {
  static constexpr auto values = first<Op, kOps.size()>();
  return values;
}
std::span<const ReduceOp> all_reduce_ops() {
  static constexpr auto values = first<ReduceOp, kReduceOps.size()>();
  return values;
}
std::span<const DType> all_dtypes() {
  static constexpr auto values = first<DType, kDTypes.size()>();
  return values;
}
std::span<const Algorithm> all_algorithms() {
  static constexpr auto values = first<Algorithm, kAlgorithms.size() - 1>(1);
  return values;
}

std::size_t bytes_per_element(DType dtype) { return kBytes[static_cast<std::size_t>(dtype)]; }
bool is_integer(DType dtype) { return dtype >= DType::int8; }

}  // namespace lockstep
