#include "lockstep/parallel/pipeline/shapes.h"

#include <fmt/format.h>
#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::pipeline {

std::string to_string(const Shape& shape) {
  std::string sizes;
  for (const std::int64_t size : shape.sizes) sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
  return fmt::format("{} [{}]", c10::toString(shape.dtype), sizes);
}

torch::Tensor empty_wire() { return torch::zeros({2 + kMaxDimensions}, torch::kInt64); }

torch::Tensor to_wire(const Shape& shape) {
  if (static_cast<std::int64_t>(shape.sizes.size()) > kMaxDimensions)
    throw UsageError(fmt::format("{} has {} dimensions", to_string(shape), shape.sizes.size()),
                     fmt::format("a cut where the activation has at most {}", kMaxDimensions));
  torch::Tensor wire = empty_wire();
  auto* numbers = wire.data_ptr<std::int64_t>();
  numbers[0] = static_cast<std::int64_t>(shape.dtype);
  numbers[1] = static_cast<std::int64_t>(shape.sizes.size());
  std::copy(shape.sizes.begin(), shape.sizes.end(), numbers + 2);
  return wire;
}

Shape from_wire(const torch::Tensor& wire) {
  const auto* numbers = wire.data_ptr<std::int64_t>();
  return {{numbers + 2, numbers + 2 + numbers[1]}, static_cast<at::ScalarType>(numbers[0])};
}

}  // namespace lockstep::pipeline
