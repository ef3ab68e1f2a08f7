#include "lockstep/buffer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "lockstep/error.h"
#include "lockstep/named_values.h"

namespace lockstep {
namespace {

constexpr auto kOps = named_values<Op>("op", {{Op::all_reduce, "all_reduce"},
                                              {Op::reduce, "reduce"},
                                              {Op::broadcast, "broadcast"},
                                              {Op::scatter, "scatter"},
                                              {Op::gather, "gather"},
                                              {Op::all_gather, "all_gather"},
                                              {Op::reduce_scatter, "reduce_scatter"},
                                              {Op::all_to_all, "all_to_all"},
                                              {Op::barrier, "barrier"}});
constexpr auto kReduceOps = named_values<ReduceOp>("reduction", {{ReduceOp::sum, "sum"},
                                                                 {ReduceOp::mean, "mean"},
                                                                 {ReduceOp::min, "min"},
                                                                 {ReduceOp::max, "max"},
                                                                 {ReduceOp::product, "product"}});
constexpr auto kDTypes = named_values<DType>("type", {{DType::float32, "float32"},
                                                      {DType::float64, "float64"},
                                                      {DType::float16, "float16"},
                                                      {DType::bfloat16, "bfloat16"},
                                                      {DType::int8, "int8"},
                                                      {DType::int32, "int32"},
                                                      {DType::int64, "int64"},
                                                      {DType::uint8, "uint8"}});
constexpr auto kAlgorithms = named_values<Algorithm>("algorithm", {{Algorithm::automatic, "auto"},
                                                                   {Algorithm::naive, "naive"},
                                                                   {Algorithm::exchange, "exchange"},
                                                                   {Algorithm::tree, "tree"},
                                                                   {Algorithm::ring, "ring"},
                                                                   {Algorithm::halving_doubling, "halving_doubling"},
                                                                   {Algorithm::ordered, "ordered"},
                                                                   {Algorithm::direct, "direct"}});
constexpr std::array<std::size_t, kDTypes.size()> kBytes{4, 8, 2, 2, 1, 4, 8, 1};

template <typename E, std::size_t N>
E parse_in(const NamedValues<E, N>& values, std::string_view what, std::string_view text) {
  if (const auto found = values.find(text)) return *found;
  throw UsageError(fmt::format("{}: '{}' is none of {}", what, text, fmt::join(values.names(), ", ")));
}

template <typename E, std::size_t N>
constexpr std::array<E, N> first(std::size_t from = 0) {
  std::array<E, N> values{};
  for (std::size_t i = 0; i < N; ++i) values[i] = static_cast<E>(i + from);
  return values;
}

}  // namespace

const char* name_of(Op op) { return kOps.name_of(op); }
const char* name_of(ReduceOp op) { return kReduceOps.name_of(op); }
const char* name_of(DType dtype) { return kDTypes.name_of(dtype); }
const char* name_of(Algorithm algorithm) { return kAlgorithms.name_of(algorithm); }

Op parse_op(std::string_view what, std::string_view text) { return parse_in(kOps, what, text); }
ReduceOp parse_reduce_op(std::string_view what, std::string_view text) { return parse_in(kReduceOps, what, text); }
DType parse_dtype(std::string_view what, std::string_view text) { return parse_in(kDTypes, what, text); }
Algorithm parse_algorithm(std::string_view what, std::string_view text) { return parse_in(kAlgorithms, what, text); }

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
