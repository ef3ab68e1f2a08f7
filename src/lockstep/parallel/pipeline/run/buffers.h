// A pool of memory for received tensors, which is used again and again. A buffer is free when nobody but this pool
// holds its memory: no stage that kept the activation, no view of it, no message in flight. So nobody has to return a
// buffer.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "lockstep/parallel/pipeline/run/shapes.h"

namespace lockstep::pipeline {

class Buffers {
 public:
  torch::Tensor take(const Shape& shape) {
    for (const torch::Tensor& buffer : all_)
      if (buffer.storage().use_count() == 1 && buffer.sizes() == shape.sizes && buffer.scalar_type() == shape.dtype)
        return buffer.detach();  // the caller's own handle: changes such as requires_grad do not stay in the pool
    all_.push_back(torch::empty(shape.sizes, at::TensorOptions(shape.dtype)));
    return all_.back().detach();
  }
  void clear() { all_.clear(); }
  std::size_t size() const { return all_.size(); }

 private:
  std::vector<torch::Tensor> all_;
};

}  // namespace lockstep::pipeline
