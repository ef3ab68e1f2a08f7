#include "lockstep/parallel/pipeline/run/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::pipeline {
namespace {

constexpr std::int64_t kWordsPerTensor = 2 + kMaxDimensions;  // type, number of dimensions, sizes

std::string to_string(const Shape& shape) {
  return fmt::format("{} [{}]", c10::toString(shape.dtype), fmt::join(shape.sizes, ", "));
}

}  // namespace

Shapes Shapes::of(const Activation& activation) {
  Shapes shapes{.form = activation.form(), .tensors = {}};
  for (const torch::Tensor& tensor : activation.tensors()) shapes.tensors.push_back(Shape::of(tensor));
  return shapes;
}

std::string to_string(const Shapes& shapes) {
  std::vector<std::string> texts;
  for (const Shape& shape : shapes.tensors) texts.push_back(to_string(shape));
  return shapes.form == Activation::Form::tensor && texts.size() == 1 ? texts.front()
                                                                      : fmt::format("({})", fmt::join(texts, ", "));
}

torch::Tensor empty_wire() { return torch::zeros({2 + kMaxTensors * kWordsPerTensor}, torch::kInt64); }

torch::Tensor to_wire(const Shapes& shapes) {
  if (static_cast<std::int64_t>(shapes.tensors.size()) > kMaxTensors)
    throw UsageError(fmt::format("an activation has {} tensors", shapes.tensors.size()),
                     fmt::format("a cut where it has at most {}", kMaxTensors));
  torch::Tensor wire = empty_wire();
  auto* numbers = wire.data_ptr<std::int64_t>();
  *numbers++ = static_cast<std::int64_t>(shapes.form);
  *numbers++ = static_cast<std::int64_t>(shapes.tensors.size());
  for (const Shape& shape : shapes.tensors) {
    if (static_cast<std::int64_t>(shape.sizes.size()) > kMaxDimensions)
      throw UsageError(fmt::format("{} has {} dimensions", to_string(shape), shape.sizes.size()),
                       fmt::format("a cut where the activation has at most {}", kMaxDimensions));
    numbers[0] = static_cast<std::int64_t>(shape.dtype);
    numbers[1] = static_cast<std::int64_t>(shape.sizes.size());
    std::copy(shape.sizes.begin(), shape.sizes.end(), numbers + 2);
    numbers += kWordsPerTensor;
  }
  return wire;
}

Shapes from_wire(const torch::Tensor& wire) {
  const auto* numbers = wire.data_ptr<std::int64_t>();
  Shapes shapes{.form = static_cast<Activation::Form>(numbers[0]), .tensors = {}};
  for (std::int64_t i = 0; i < numbers[1]; ++i) {
    const auto* words = numbers + 2 + i * kWordsPerTensor;
    shapes.tensors.push_back({{words + 2, words + 2 + words[1]}, static_cast<at::ScalarType>(words[0])});
  }
  return shapes;
}

}  // namespace lockstep::pipeline
