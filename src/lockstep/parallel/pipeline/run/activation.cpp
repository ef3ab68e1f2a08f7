#include "lockstep/parallel/pipeline/run/activation.h"

#include <fmt/format.h>

#include <array>
#include <tuple>

#include "lockstep/error.h"

namespace lockstep::pipeline {
namespace {

using torch::Tensor;
using torch::nn::AnyValue;

template <std::size_t... I>
auto tuple_of(const std::vector<Tensor>& tensors, std::index_sequence<I...>) {
  return std::make_tuple(tensors[I]...);
}

// Takes the tensors out of `value` if it is a tuple of N tensors.
template <std::size_t N>
bool take_tuple(AnyValue& value, std::vector<Tensor>& tensors) {
  using Tuple = decltype(tuple_of(tensors, std::make_index_sequence<N>()));
  const auto* tuple = value.try_get<Tuple>();
  if (tuple == nullptr) return false;
  std::apply([&](const auto&... tensor) { tensors = {tensor...}; }, *tuple);
  return true;
}

}  // namespace

Activation Activation::from(AnyValue value) {
  if (const auto* tensor = value.try_get<Tensor>()) return *tensor;
  if (const auto* list = value.try_get<std::vector<Tensor>>()) return {Form::list, *list};
  std::vector<Tensor> tensors;
  if (take_tuple<2>(value, tensors) || take_tuple<3>(value, tensors) || take_tuple<4>(value, tensors))
    return {Form::tuple, std::move(tensors)};
  throw UsageError(fmt::format("a module at the end of a stage returns a {}, which can't be sent to the next stage",
                               c10::demangle(value.type_info().name())),
                   "a Tensor, a std::tuple of 2 to 4 Tensors or a std::vector of Tensors, or a cut at another module");
}

AnyValue Activation::value() const {
  if (form_ == Form::list) return AnyValue(std::vector<Tensor>(tensors_));
  if (form_ == Form::tensor) return AnyValue(tensor());
  switch (tensors_.size()) {
    case 2:
      return AnyValue(tuple_of(tensors_, std::make_index_sequence<2>()));
    case 3:
      return AnyValue(tuple_of(tensors_, std::make_index_sequence<3>()));
    default:
      return AnyValue(tuple_of(tensors_, std::make_index_sequence<kMostInTuple>()));
  }
}

Tensor Activation::tensor() const {
  if (tensors_.size() > 1)
    throw UsageError(fmt::format("a single tensor is wanted, and there are {}", tensors_.size()),
                     "a network whose last module returns a Tensor");
  return tensors_.empty() ? Tensor() : tensors_.front();
}

}  // namespace lockstep::pipeline
