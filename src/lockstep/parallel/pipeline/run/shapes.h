// The shapes of the activations that travel between stages. They are the same in every step until the batch has
// another shape. So ranks tell each other only in the first step, and in each step that differs from the one before,
// what the form, shapes and types of an activation are. A gradient has the shapes and types of its activation.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/parallel/pipeline/run/activation.h"

namespace lockstep::pipeline {

// The shape of one tensor.
struct Shape {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;

  static Shape of(const torch::Tensor& tensor) { return {tensor.sizes().vec(), tensor.scalar_type()}; }
  bool operator==(const Shape&) const = default;
  // Only such tensors have gradients.
  bool is_floating_point() const { return at::isFloatingType(dtype); }
};

// The shapes of an activation.
struct Shapes {
  Activation::Form form = Activation::Form::tensor;
  std::vector<Shape> tensors;

  static Shapes of(const Activation& activation);
  bool operator==(const Shapes&) const = default;
};

// As in "Float [4, 16]", or "(Float [4, 16], Long [4])" for several tensors.
std::string to_string(const Shapes& shapes);

// Shapes as they travel: 64-bit integers, the same number of them for all shapes. to_wire() throws UsageError if there
// are more than 8 tensors, or a tensor has more than 8 dimensions.
constexpr std::int64_t kMaxTensors = 8;
constexpr std::int64_t kMaxDimensions = 8;
torch::Tensor to_wire(const Shapes& shapes);
Shapes from_wire(const torch::Tensor& wire);
torch::Tensor empty_wire();

}  // namespace lockstep::pipeline
