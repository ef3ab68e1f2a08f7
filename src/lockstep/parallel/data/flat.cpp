#include "lockstep/parallel/data/flat.h"

#include <fmt/format.h>
#include <algorithm>

#include "lockstep/buffer.h"
#include "lockstep/error.h"

namespace lockstep::parallel {
FlatParameters::FlatParameters(const std::vector<Named>& parameters, Gradients& gradients, const DdpOptions& options,
                               Communicator& comm, bool fuses)
    : parameters_(parameters), gradients_(gradients) {
  const torch::NoGradGuard no_grad;
  const std::size_t bytes = gradients.layout().bytes;
  memory_ = options.sharded ? comm.allocate_common(bytes) : own_memory(bytes);
  places_.resize(parameters.size());
  for (const BucketLayout& bucket : gradients.layout().buckets)
    for (const Slot& slot : bucket.slots) {
      const torch::Tensor& parameter = parameters[slot.item].tensor;
      places_[slot.item] = tensor_over(memory_, slot.offset, parameter);
      if (comm.rank() == 0 || !options.sharded) places_[slot.item].copy_(parameter);
    }
  if (options.sharded)
    comm.barrier();  // waits until rank 0 has written the values
  else
    comm.broadcast(Buffer(memory_->data(), bytes, DType::uint8), 0);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor parameter = parameters[i].tensor;
    parameter.set_data(places_[i]);
    if (parameter.grad().defined()) gradients.bring_in(i);
    gradients.point(i);
  }
  make_blocks(options, comm);
  if (fuses) make_unaveraged(comm);
  gradients.when_moved([this](std::size_t bucket) { follow(bucket); });
}

void FlatParameters::make_blocks(const DdpOptions& options, const Communicator& comm) {
  for (std::size_t index = 0; index < gradients_.layout().buckets.size(); ++index) {
    const BucketLayout& bucket = gradients_.layout().buckets[index];
    const std::size_t size = c10::elementSize(bucket.dtype);
    const std::size_t most = std::max<std::size_t>(options.block_bytes / size, 1);
    const int chunks = options.sharded ? comm.size() : 1;
    const std::size_t chunk = bucket.count / static_cast<std::size_t>(chunks);
    const std::size_t begin = options.sharded ? chunk * static_cast<std::size_t>(comm.rank()) : 0;
    for (std::size_t at = begin; at < begin + chunk; at += most) {
      const std::size_t count = std::min(most, begin + chunk - at);
      const std::size_t offset = bucket.offset + at * size;
      torch::Tensor block = torch::from_blob(
          memory_->data() + offset, {static_cast<std::int64_t>(count)}, [memory = memory_](void*) {},
          at::TensorOptions(bucket.dtype));
      block.set_requires_grad(true);
      origins_.push_back({index, at});
      block_gradients_.push_back(gradients_.over(index, at, count));
      block.mutable_grad() = block_gradients_.back();
      blocks_.push_back(std::move(block));
    }
  }
  remember();
}

void FlatParameters::make_unaveraged(const Communicator& comm) {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto places = comm.on_all_ranks(block_gradients_[i].data_ptr(), block_gradients_[i].nbytes());
    unaveraged_.push_back(std::make_unique<optim::Unaveraged>(
        blocks_[i], block_gradients_[i], std::vector<const std::byte*>(places.begin(), places.end())));
  }
}

// An optimizer may outlive this object, and finds the gradients then where it looks for all others.
FlatParameters::~FlatParameters() { average(); }

void FlatParameters::leave_to_optimizer(bool leave) {
  left_ = leave;
  for (const auto& gradient : unaveraged_) leave ? gradient->arrive() : gradient->drop();
}

void FlatParameters::average() {
  if (!is_left()) return;
  left_ = false;
  for (const auto& gradient : unaveraged_) gradient->average();
  remember();
  remember_values();
}

bool FlatParameters::is_left() const {
  return left_ && std::any_of(unaveraged_.begin(), unaveraged_.end(),
                              [](const auto& gradient) { return gradient->is_pending(); });
}

// Makes the tensor over the place of a block's gradient.
void FlatParameters::place(std::size_t block) {
  const auto count = static_cast<std::size_t>(blocks_[block].numel());
  block_gradients_[block] = gradients_.over(origins_[block].bucket, origins_[block].begin, count);
  if (!unaveraged_.empty()) unaveraged_[block]->set_place(block_gradients_[block]);
}

// The gradients of a bucket have moved to other memory, and those of its blocks go there, too.
void FlatParameters::follow(std::size_t bucket) {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (origins_[i].bucket != bucket) continue;
    const bool is_set = blocks_[i].grad().defined() && blocks_[i].grad().data_ptr() == block_gradients_[i].data_ptr();
    place(i);
    if (is_set) blocks_[i].mutable_grad() = block_gradients_[i];
  }
}

void FlatParameters::check_places() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].tensor.data_ptr() != places_[i].data_ptr() && places_[i].numel() > 0)
      throw UsageError(
          fmt::format("the data of {} is no longer where flat parameters put it, so the optimizer would "
                      "update something else",
                      parameters_[i].name),
          "torch::load() and module.to() before DistributedDataParallel is made; copy_() to change values");
}

void FlatParameters::restore_gradients(bool zero) {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const torch::Tensor& gradient = blocks_[i].grad();
    if (gradient.defined() && gradient.data_ptr() == block_gradients_[i].data_ptr()) continue;
    let_go(i);
    if (gradient.defined())
      block_gradients_[i].copy_(gradient);
    else if (zero)
      block_gradients_[i].zero_();
    blocks_[i].mutable_grad() = block_gradients_[i];
  }
}

// If somebody keeps the block's gradient, which was dropped, the block gets another tensor over its place.
void FlatParameters::let_go(std::size_t block) {
  const std::size_t own_holders = unaveraged_.empty() ? 1 : 2;
  torch::Tensor& gradient = block_gradients_[block];
  if (gradient.use_count() == own_holders && gradient.storage().use_count() == 1) return;
  gradients_.part_from(gradient);
  place(block);
}

bool FlatParameters::dropped() const {
  return std::none_of(blocks_.begin(), blocks_.end(),
                      [](const torch::Tensor& block) { return block.grad().defined(); });
}

std::vector<std::uint64_t> FlatParameters::versions() const {
  std::vector<std::uint64_t> found;
  const auto add = [&](const torch::Tensor& tensor) {
    found.push_back(tensor.defined() ? static_cast<std::uint64_t>(tensor._version()) : ~std::uint64_t{0});
    found.push_back(reinterpret_cast<std::uint64_t>(tensor.defined() ? tensor.unsafeGetTensorImpl() : nullptr));
  };
  for (const torch::Tensor& block : blocks_) {
    add(block);
    add(block.grad());
  }
  for (const auto& [name, tensor] : parameters_) add(tensor.grad());
  return found;
}

void FlatParameters::remember_values() {
  constexpr std::int64_t kTries = 8;
  values_.clear();
  block_versions_.clear();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    block_versions_.push_back(static_cast<std::uint32_t>(blocks_[i]._version()));
    const auto size = static_cast<std::int64_t>(blocks_[i].element_size());
    const auto* values = static_cast<const std::byte*>(blocks_[i].data_ptr());
    const auto* gradients = static_cast<const std::byte*>(block_gradients_[i].data_ptr());
    for (std::int64_t k = 0; k < kTries; ++k) {
      const std::int64_t offset = blocks_[i].numel() * k / kTries * size;
      if (std::all_of(gradients + offset, gradients + offset + size, [](std::byte b) { return b == std::byte{0}; }))
        continue;
      Value& value = values_.emplace_back(Value{values + offset, static_cast<std::size_t>(size), {}});
      std::copy_n(value.at, value.size, value.was.begin());
      break;
    }
  }
}

bool FlatParameters::stepped() const {
  if (left_) return !is_left();
  for (std::size_t i = 0; i < block_versions_.size(); ++i)
    if (!blocks_[i].grad().defined() || static_cast<std::uint32_t>(blocks_[i]._version()) != block_versions_[i])
      return true;
  return values_changed();
}

bool FlatParameters::values_changed() const {
  return std::any_of(values_.begin(), values_.end(), [](const Value& value) {
    return !std::equal(value.at, value.at + value.size, value.was.begin());
  });
}

bool FlatParameters::zeroed() const {
  return std::none_of(block_gradients_.begin(), block_gradients_.end(),
                      [](const torch::Tensor& gradient) { return gradient.any().item<bool>(); });
}

}  // namespace lockstep::parallel
