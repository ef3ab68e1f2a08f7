// The memory of all buckets, which lies in the arena, and the gradients over it.
//
// How a gradient comes to its place in a bucket:
//   it had none before     backward writes the new one there (place_lender.h); if not, it is copied
//   it has one there       backward adds to it
//   it has one elsewhere   backward adds to it, and then it is copied
//
// A tensor of an earlier gradient that somebody keeps must not change. So before a place gets a new gradient, such a
// tensor gets memory of its own, with a copy of the values. All tensors and views that share its storage follow.
//
// Invariants:
//  1. One allocation holds all buckets. A new layout moves the gradients inside it; a second copy of the memory exists
//     only while they are moved. There is one exception: bring_in().
//  2. The tensor of a gradient keeps the memory alive, so gradients may outlive everything else.
//  3. The gaps between gradients hold zeros.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/gradients.h"
#include "lockstep/parallel/data/layout.h"
#include "lockstep/parallel/data/parameters.h"
#include "lockstep/parallel/data/place_lender.h"

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
  // The same, for writing to it: nobody else's tensor lies there when it returns.
  const torch::Tensor& place_for_writing(std::size_t parameter);

  // Must be called at the beginning and at the end of a backward, on its thread: in between, autograd may write new
  // gradients directly into their places. Further calls of begin_backward() in the same backward have no effect and
  // return false.
  bool begin_backward();
  void end_backward() { lender_.end(); }

  // True if parameter.grad() lies in its place.
  bool is_in_place(std::size_t parameter) const;
  // Must be called when autograd has set parameter.grad() or has added to it.
  void came(std::size_t parameter);
  // After came(): copies parameter.grad() into its place if it lies elsewhere, and points parameter.grad() there.
  // Returns false, without having done anything, if another tensor still lies in the place; most such tensors are gone
  // at the end of backward. Throws UsageError if the gradient is sparse.
  bool try_to_bring_in(std::size_t parameter);
  // The same, but always succeeds: if another tensor lies in the place, the bucket moves to other memory.
  void bring_in(std::size_t parameter);
  // Points parameter.grad() to its place, whatever it was before.
  void point(std::size_t parameter);

  // Moves every gradient to its place in the new layout, which must have the same number of bytes.
  void rearrange(Layout layout);

  // A tensor over `count` elements of a bucket, starting at the element `begin`.
  torch::Tensor over(std::size_t bucket, std::size_t begin, std::size_t count) const;
  // `callback` is called after a bucket has moved to other memory. At most one callback can be set.
  void when_moved(std::function<void(std::size_t bucket)> callback) { when_moved_ = std::move(callback); }

  // True if a bucket has moved to memory that the other ranks cannot see.
  bool has_moved() const { return has_moved_; }
  // Gives the memory of a tensor over a bucket, and of all its views, a copy of its own.
  void part_from(const torch::Tensor& kept);
  // Bytes of gradients that were copied into their places since begin_backward().
  std::size_t copied_bytes() const { return copied_bytes_; }
  // Tensors of earlier gradients that somebody kept, and that got memory of their own, since construction.
  std::size_t kept() const { return kept_; }

 private:
  void divide(const std::shared_ptr<Bytes>& memory);
  void make_places(std::size_t bucket);
  GradientBucket make_bucket(std::size_t bucket) const;
  bool make_room(std::size_t parameter);
  void part_from(c10::StorageImpl& storage);
  void move(std::size_t bucket);

  const std::vector<Named>& parameters_;
  Layout layout_;
  std::shared_ptr<Bytes> memory_;
  std::vector<std::shared_ptr<Bytes>> memories_;  // by bucket; parts of memory_, until a bucket is moved
  std::vector<GradientBucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<torch::Tensor> places_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> owners_;  // by parameter: what the lent place became
  bool has_moved_ = false;                                         // a bucket has
  std::vector<bool> had_one_;                                      // by parameter: a gradient, when backward began
  std::function<void(std::size_t)> when_moved_;
  std::size_t copied_bytes_ = 0;
  std::size_t kept_ = 0;
  PlaceLender lender_{parameters_.size(), [this](std::size_t parameter) {
                        return !parameters_[parameter].tensor.grad().defined() && make_room(parameter);
                      }};
};

// Zeroed memory of this rank alone.
std::shared_ptr<Bytes> own_memory(std::size_t bytes);

// A tensor over memory that it keeps alive. It has the shape of `like`, and also its strides if these leave no gaps.
torch::Tensor tensor_over(const std::shared_ptr<Bytes>& memory, std::size_t offset, const torch::Tensor& like);

// The parameters as the items that make_layout() places.
std::vector<Item> items_of(const std::vector<Named>& parameters);

}  // namespace lockstep::parallel
