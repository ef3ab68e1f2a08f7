// What travels between stages looks the same in every step, so ranks tell each other once: shape and type of each
// activation, ahead of the first. A gradient looks like its activation.
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

// "Float [4, 16]"
std::string to_string(const Shape& shape);

// As it travels: 64-bit integers, as many for every shape. At most 8 dimensions: more are a UsageError.
constexpr std::int64_t kMaxDimensions = 8;
torch::Tensor to_wire(const Shape& shape);
Shape from_wire(const torch::Tensor& wire);
torch::Tensor empty_wire();

}  // namespace lockstep::pipeline
