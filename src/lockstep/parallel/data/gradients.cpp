#include "lockstep/parallel/data/gradients.h"

#include <fmt/format.h>
#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::parallel {

torch::Tensor tensor_over(const std::shared_ptr<Bytes>& memory, std::size_t offset, const torch::Tensor& like) {
  std::byte* data = memory->data() + offset;
  const auto options = at::TensorOptions(like.scalar_type());
  const auto keep = [memory](void*) {};
  if (like.is_non_overlapping_and_dense()) return torch::from_blob(data, like.sizes(), like.strides(), keep, options);
  return torch::from_blob(data, like.sizes(), keep, options);
}

std::vector<Item> items_of(const std::vector<Named>& parameters) {
  std::vector<Item> items;
  for (const auto& [name, tensor] : parameters)
    items.push_back({name, static_cast<std::size_t>(tensor.numel()), tensor.scalar_type()});
  return items;
}

Gradients::Gradients(const std::vector<Named>& parameters, Layout layout, Communicator& comm)
    : parameters_(parameters), layout_(std::move(layout)), memory_(comm.allocate_bytes(layout_.bytes)) {
  make_tensors();
}

torch::Tensor Gradients::over(std::size_t offset, std::size_t count, at::ScalarType dtype) const {
  return torch::from_blob(
      memory_->data() + offset, {static_cast<std::int64_t>(count)}, [memory = memory_](void*) {},
      at::TensorOptions(dtype));
}

void Gradients::make_tensors() {
  places_.assign(parameters_.size(), {});
  bucket_of_.assign(parameters_.size(), 0);
  buckets_.clear();
  for (std::size_t index = 0; index < layout_.buckets.size(); ++index) {
    const BucketLayout& bucket = layout_.buckets[index];
    std::vector<torch::Tensor> gradients;
    std::vector<std::size_t> members;
    for (const Slot& slot : bucket.slots) {
      places_[slot.item] = tensor_over(memory_, slot.offset, parameters_[slot.item].tensor);
      bucket_of_[slot.item] = index;
      gradients.push_back(places_[slot.item]);
      members.push_back(slot.item);
    }
    buckets_.emplace_back(index, layout_.buckets.size(), over(bucket.offset, bucket.count, bucket.dtype),
                          std::move(gradients), std::move(members));
  }
}

bool Gradients::is_in_place(std::size_t parameter) const {
  const torch::Tensor& gradient = parameters_[parameter].tensor.grad();
  const torch::Tensor& place = places_[parameter];
  if (!gradient.defined()) return false;
  if (gradient.is_same(place)) return true;
  return gradient.layout() == at::kStrided && gradient.data_ptr() == place.data_ptr() &&
         gradient.strides() == place.strides();
}

void Gradients::bring_in(std::size_t parameter) {
  if (is_in_place(parameter)) return;
  const auto& [name, tensor] = parameters_[parameter];
  if (tensor.grad().layout() != at::kStrided)
    throw UsageError(fmt::format("the gradient of {} is sparse, which data parallelism can't reduce", name),
                     "sparse(false) in the embedding's options");
  places_[parameter].copy_(tensor.grad());
  point(parameter);
}

void Gradients::point(std::size_t parameter) {
  torch::Tensor tensor = parameters_[parameter].tensor;
  tensor.mutable_grad() = places_[parameter];
}

void Gradients::rearrange(Layout layout) {
  if (layout.bytes != layout_.bytes) throw Error("a layout of another size");
  std::vector<bool> moves;
  std::vector<std::size_t> from;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    moves.push_back(is_in_place(i));
    from.push_back(static_cast<std::size_t>(static_cast<std::byte*>(places_[i].data_ptr()) - memory_->data()));
  }
  const std::vector<std::byte> old(memory_->begin(), memory_->end());
  layout_ = std::move(layout);
  std::fill(memory_->begin(), memory_->end(), std::byte{0});
  for (const BucketLayout& bucket : layout_.buckets)
    for (const Slot& slot : bucket.slots)
      std::copy_n(old.data() + from[slot.item], slot.count * c10::elementSize(bucket.dtype),
                  memory_->data() + slot.offset);
  make_tensors();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (moves[i]) point(i);
}

}  // namespace lockstep::parallel
