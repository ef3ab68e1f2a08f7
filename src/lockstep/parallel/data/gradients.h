// The memory of all buckets, in the arena, and the gradients over it.
//
// Invariants:
//  1. One allocation holds all buckets. A new order moves gradients inside it: no second copy of it ever exists for
//     longer than that takes.
//  2. A gradient's tensor over its slot keeps the memory alive, so gradients may outlive everything else.
//  3. Gaps are zeros.
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/data/bucket.h"
#include "lockstep/parallel/data/layout.h"
#include "lockstep/parallel/data/parameters.h"

namespace lockstep::parallel {

class Gradients {
 public:
  // Collective. `parameters` must outlive it.
  Gradients(const std::vector<Named>& parameters, Layout layout, Communicator& comm);

  const Layout& layout() const { return layout_; }
  std::vector<GradientBucket>& buckets() { return buckets_; }
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  std::size_t bucket_of(std::size_t parameter) const { return bucket_of_[parameter]; }
  // The gradient's place, with the parameter's shape and strides.
  const torch::Tensor& place(std::size_t parameter) const { return places_[parameter]; }

  // True when parameter.grad() lies in its place.
  bool is_in_place(std::size_t parameter) const;
  // Makes it so: copies what parameter.grad() holds, and points it here.
  void bring_in(std::size_t parameter);
  // Points parameter.grad() here, whatever it was.
  void point(std::size_t parameter);

  // Moves every gradient to where the new layout has it. It needs as much memory as the old one.
  void rearrange(Layout layout);

  // Tensors over [offset, offset + count * element) of the memory.
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

// A tensor over memory that it keeps alive, with the shape of `like`, and its strides where these leave no gaps.
torch::Tensor tensor_over(const std::shared_ptr<Bytes>& memory, std::size_t offset, const torch::Tensor& like);

// What make_layout places.
std::vector<Item> items_of(const std::vector<Named>& parameters);

}  // namespace lockstep::parallel
