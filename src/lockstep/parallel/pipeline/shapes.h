// The shapes of the tensors that travel between stages. They are the same in every step, so ranks tell each other only
// once, before the first activation, what its shape and type are. A gradient has the shape and type of its activation.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::pipeline {

struct Shape {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;

  static Shape of(const torch::Tensor& tensor) { return {tensor.sizes().vec(), tensor.scalar_type()}; }
  bool operator==(const Shape&) const = default;
};

// As in "Float [4, 16]".
std::string to_string(const Shape& shape);

// A shape as it travels: 64-bit integers, the same number of them for every shape. to_wire() throws UsageError if there
// are more than 8 dimensions.
constexpr std::int64_t kMaxDimensions = 8;
torch::Tensor to_wire(const Shape& shape);
Shape from_wire(const torch::Tensor& wire);
torch::Tensor empty_wire();

}  // namespace lockstep::pipeline
