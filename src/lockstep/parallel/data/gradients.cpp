#include "lockstep/parallel/data/gradients.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

#include "lockstep/error.h"
#include "lockstep/parallel/data/autograd.h"

namespace lockstep::parallel {

std::shared_ptr<Bytes> own_memory(std::size_t bytes) {
  const torch::Tensor owner = torch::zeros({static_cast<std::int64_t>(bytes)}, at::kByte);
  return {new Bytes(static_cast<std::byte*>(owner.data_ptr()), bytes), [owner](Bytes* view) { delete view; }};
}

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

namespace {

const c10::weak_intrusive_ptr<c10::StorageImpl> kNobody{c10::intrusive_ptr<c10::StorageImpl>()};

bool have_equal_strides(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.dim() != b.dim()) return false;
  for (std::int64_t i = 0; i < a.dim(); ++i)
    if (a.size(i) != b.size(i) || (a.size(i) > 1 && a.stride(i) != b.stride(i))) return false;
  return true;
}

}  // namespace

Gradients::Gradients(const std::vector<Named>& parameters, Layout layout, Communicator& comm)
    : parameters_(parameters),
      layout_(std::move(layout)),
      owners_(parameters.size(), kNobody),
      had_one_(parameters.size(), false) {
  divide(comm.allocate_bytes(layout_.bytes));
}

// Gives each bucket its part of `memory`.
void Gradients::divide(const std::shared_ptr<Bytes>& memory) {
  memory_ = memory;
  memories_.clear();
  for (const BucketLayout& bucket : layout_.buckets)
    memories_.emplace_back(new Bytes(memory->subspan(bucket.offset, bucket.bytes())),
                           [memory](Bytes* part) { delete part; });
  places_.assign(parameters_.size(), {});
  bucket_of_.assign(parameters_.size(), 0);
  buckets_.clear();
  for (std::size_t bucket = 0; bucket < layout_.buckets.size(); ++bucket) {
    for (const Slot& slot : layout_.buckets[bucket].slots) bucket_of_[slot.item] = bucket;
    make_places(bucket);
    buckets_.push_back(make_bucket(bucket));
  }
}

torch::Tensor Gradients::over(std::size_t bucket, std::size_t begin, std::size_t count) const {
  const at::ScalarType dtype = layout_.buckets[bucket].dtype;
  return torch::from_blob(
      memories_[bucket]->data() + begin * c10::elementSize(dtype), {static_cast<std::int64_t>(count)},
      [memory = memories_[bucket]](void*) {}, at::TensorOptions(dtype));
}

void Gradients::make_places(std::size_t bucket) {
  const BucketLayout& layout = layout_.buckets[bucket];
  for (const Slot& slot : layout.slots) {
    const std::size_t offset = slot.offset - layout.offset;
    places_[slot.item] = tensor_over(memories_[bucket], offset, parameters_[slot.item].tensor);
    lender_.set_place(slot.item, memories_[bucket]->subspan(offset, places_[slot.item].nbytes()), memories_[bucket]);
    owners_[slot.item] = kNobody;
  }
}

GradientBucket Gradients::make_bucket(std::size_t bucket) const {
  const BucketLayout& layout = layout_.buckets[bucket];
  std::vector<torch::Tensor> gradients;
  std::vector<std::size_t> members;
  for (const Slot& slot : layout.slots) {
    gradients.push_back(places_[slot.item]);
    members.push_back(slot.item);
  }
  return {bucket, layout_.buckets.size(), over(bucket, 0, layout.count), std::move(gradients), std::move(members)};
}

bool Gradients::begin_backward() {
  if (!lender_.begin()) return false;
  copied_bytes_ = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) had_one_[i] = parameters_[i].tensor.grad().defined();
  return true;
}

bool Gradients::is_in_place(std::size_t parameter) const {
  const torch::Tensor& gradient = parameters_[parameter].tensor.grad();
  const torch::Tensor& place = places_[parameter];
  if (!gradient.defined()) return false;
  if (gradient.is_same(place)) return true;
  return gradient.layout() == at::kStrided && gradient.data_ptr() == place.data_ptr() &&
         have_equal_strides(gradient, place);
}

void Gradients::came(std::size_t parameter) {
  const torch::Tensor& gradient = parameters_[parameter].tensor.grad();
  if (gradient.layout() != at::kStrided) return;
  const bool in_place = is_in_place(parameter);
  if (in_place && !lender_.was_lent_now(parameter)) return;  // autograd has added to the gradient that was there
  lender_.came(parameter, gradient.data_ptr(), !had_one_[parameter]);
  if (!in_place) return;
  // In a.view(-1) + x, the gradient of a is a view of what backward goes on with from x. Then it must not be summed
  // over ranks where it is.
  if (is_nobody_elses(gradient))
    owners_[parameter] = gradient.storage().getWeakStorageImpl();
  else
    part_from(*gradient.storage().unsafeGetStorageImpl());
}

bool Gradients::try_to_bring_in(std::size_t parameter) {
  if (is_in_place(parameter)) return true;
  const auto& [name, tensor] = parameters_[parameter];
  if (tensor.grad().layout() != at::kStrided)
    throw UsageError(fmt::format("the gradient of {} is sparse, which data parallelism can't reduce", name),
                     "sparse(false) in the embedding's options");
  if (!make_room(parameter)) return false;
  places_[parameter].copy_(tensor.grad());
  copied_bytes_ += places_[parameter].nbytes();
  point(parameter);
  return true;
}

void Gradients::bring_in(std::size_t parameter) {
  if (try_to_bring_in(parameter)) return;
  move(bucket_of_[parameter]);
  try_to_bring_in(parameter);
}

void Gradients::point(std::size_t parameter) {
  torch::Tensor tensor = parameters_[parameter].tensor;
  tensor.mutable_grad() = places_[parameter];
}

const torch::Tensor& Gradients::place_for_writing(std::size_t parameter) {
  if (!is_in_place(parameter) && !make_room(parameter)) move(bucket_of_[parameter]);
  return places_[parameter];
}

// Gives the tensors of earlier gradients that lie in the place, and that somebody keeps, memory of their own.
// parameter.grad() must not be one of them. Returns false if a tensor still lies there that never was the gradient:
// then the place was lent to the wrong allocation.
bool Gradients::make_room(std::size_t parameter) {
  // places_ and the bucket hold the tensor once each.
  constexpr std::size_t kOwnHolders = 2;
  torch::Tensor& place = places_[parameter];
  if (place.use_count() > kOwnHolders || place.storage().use_count() > 1) {
    part_from(*place.storage().unsafeGetStorageImpl());
    ++kept_;
    const std::size_t bucket = bucket_of_[parameter];
    for (const Slot& slot : layout_.buckets[bucket].slots)
      if (slot.item == parameter)
        place =
            tensor_over(memories_[bucket], slot.offset - layout_.buckets[bucket].offset, parameters_[parameter].tensor);
    buckets_[bucket] = make_bucket(bucket);
  }
  if (!lender_.is_lent(parameter)) return true;
  if (const auto owner = owners_[parameter].lock()) {
    part_from(*owner);
    ++kept_;
  }
  return !lender_.is_lent(parameter);
}

void Gradients::part_from(const torch::Tensor& kept) {
  part_from(*kept.storage().unsafeGetStorageImpl());
  ++kept_;
}

// Gives a storage memory of its own, with the same values.
void Gradients::part_from(c10::StorageImpl& storage) {
  const std::size_t bytes = storage.nbytes();
  c10::DataPtr own = plain_memory(bytes);
  std::copy_n(static_cast<const std::byte*>(std::as_const(storage).data()), bytes, static_cast<std::byte*>(own.get()));
  storage.set_data_ptr(std::move(own));
}

// Moves a bucket to memory of this rank alone. Sums of such memory are slower.
void Gradients::move(std::size_t bucket) {
  const auto& slots = layout_.buckets[bucket].slots;
  std::vector<std::size_t> there;
  for (const Slot& slot : slots)
    if (is_in_place(slot.item)) there.push_back(slot.item);
  const std::shared_ptr<Bytes> before = memories_[bucket];
  memories_[bucket] = own_memory(before->size());
  std::copy(before->begin(), before->end(), memories_[bucket]->begin());
  make_places(bucket);
  buckets_[bucket] = make_bucket(bucket);
  for (const std::size_t parameter : there) point(parameter);
  has_moved_ = true;
  if (when_moved_) when_moved_(bucket);
}

void Gradients::rearrange(Layout layout) {
  if (layout.bytes != layout_.bytes) throw Error("a layout of another size");
  // Only parameter.grad() may lie in a place while the places change.
  std::vector<bool> moves;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    moves.push_back(is_in_place(i));
    if (moves[i]) torch::Tensor(parameters_[i].tensor).mutable_grad().reset();
    place_for_writing(i);
  }
  std::vector<std::vector<std::byte>> old;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto* begin = static_cast<const std::byte*>(places_[i].data_ptr());
    old.emplace_back(begin, begin + places_[i].nbytes());
  }
  layout_ = std::move(layout);
  if (has_moved_)  // somebody's tensor still lies in the old memory
    memory_ = own_memory(layout_.bytes);
  else
    std::fill(memory_->begin(), memory_->end(), std::byte{0});
  divide(memory_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    std::copy(old[i].begin(), old[i].end(), static_cast<std::byte*>(places_[i].data_ptr()));
    if (moves[i]) point(i);
  }
}

}  // namespace lockstep::parallel
