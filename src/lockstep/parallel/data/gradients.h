// The memory of all buckets, which lies in the arena, and the gradients over it.
//
// Invariants:
//  1. One allocation holds all buckets. A new layout moves the gradients inside it; a second copy of the memory exists
//     only while they are moved.
//  2. The tensor of a gradient keeps the memory alive, so gradients may outlive everything else.
//  3. The gaps between gradients hold zeros.
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/gradients.h"
#include "lockstep/parallel/data/layout.h"
#include "lockstep/parallel/data/parameters.h"

namespace lockstep::parallel {

class Gradients {
 public:
  // Collective. `parameters` must outlive this object.
  Gradients(const std::vector<Named>& parameters, Layout layout, Communicator& comm);

  const Layout& layout() const { return layout_; }
  std::vector<GradientBucket>& buckets() { return buckets_; }
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  std::size_t bucket_of(std::size_t parameter) const { return bucket_of_[parameter]; }
  // The gradient's place in its bucket, as a tensor with the shape of the parameter (see tensor_over() for the
  // strides).
  const torch::Tensor& place(std::size_t parameter) const { return places_[parameter]; }

  // True if parameter.grad() lies in its place.
  bool is_in_place(std::size_t parameter) const;
  // Copies parameter.grad() into its place if it lies elsewhere, and points parameter.grad() there. Throws UsageError
  // if the gradient is sparse.
  void bring_in(std::size_t parameter);
  // Points parameter.grad() to its place, whatever it was before.
  void point(std::size_t parameter);

  // Moves every gradient to its place in the new layout, which must have the same number of bytes.
  void rearrange(Layout layout);

  // A tensor over `count` elements of the memory, starting at byte `offset`.
  torch::Tensor over(std::size_t offset, std::size_t count, at::ScalarType dtype) const;

 private:
  void make_tensors();

  const std::vector<Named>& parameters_;
  Layout layout_;
  std::shared_ptr<Bytes> memory_;
  std::vector<GradientBucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<torch::Tensor> places_;
};

// A tensor over memory that it keeps alive. It has the shape of `like`, and also its strides if these leave no gaps.
torch::Tensor tensor_over(const std::shared_ptr<Bytes>& memory, std::size_t offset, const torch::Tensor& like);

// The parameters as the items that make_layout() places.
std::vector<Item> items_of(const std::vector<Named>& parameters);

}  // namespace lockstep::parallel
