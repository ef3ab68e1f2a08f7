#include "lockstep/parallel/data/distributed_model.h"

#include <fmt/format.h>

#include "lockstep/base/cpu.h"
#include "lockstep/error.h"

namespace lockstep::parallel {
namespace {

DdpOptions checked(DdpOptions options) {
  if (options.bucket_bytes == 0 || options.first_bucket_bytes == 0 || options.block_bytes < 64)
    throw UsageError(fmt::format("buckets of {} and {} bytes, blocks of {}", options.first_bucket_bytes,
                                 options.bucket_bytes, options.block_bytes),
                     "buckets of 1 byte or more, blocks of 64 or more");
  if (options.sharded && options.hook)
    throw UsageError("sharded with a communication hook: gradients are reduce-scattered, and a hook leaves the whole",
                     "one of the two");
  if (options.sharded && options.deferred)
    throw UsageError("sharded and deferred: a sharded backward ends with a barrier", "one of the two");
  options.flat |= options.sharded;
  return options;
}

ModelTensors compared(const torch::nn::Module& module, Communicator& comm) {
  ModelTensors tensors = tensors_of(module);
  compare_models(tensors, comm);
  for (const auto& [name, tensor] : tensors.trained)
    if (!tensor.is_floating_point())
      throw UsageError(fmt::format("{} is {}, and only the gradients of real floating-point numbers are averaged", name,
                                   c10::toString(tensor.scalar_type())),
                       "a parameter of pairs of reals with torch::view_as_complex() in forward");
  return tensors;
}

// The communication thread needs a core of its own, unless it waits for a network most of the time.
bool should_overlap(const DdpOptions& options, const Communicator& comm) {
  if (options.deferred || options.overlap != Overlap::automatic)
    return options.deferred || options.overlap == Overlap::on;
  return comm.transport_kind() != TransportKind::shm || comm.size() < allowed_cores();
}

}  // namespace

DistributedModel::DistributedModel(torch::nn::Module& wrapped, Communicator& ranks, DdpOptions wanted)
    : options(checked(std::move(wanted))),
      name(fmt::format("DistributedDataParallel of {}", options.name.empty() ? wrapped.name() : options.name)),
      comm(ranks.duplicate(name)),
      module(wrapped),
      tensors(compared(module, comm)),
      overlaps(should_overlap(options, comm)),
      gradients(tensors.trained,
                make_layout(items_of(tensors.trained), reverse_order(tensors.trained.size()), layout_options()), comm) {
}

LayoutOptions DistributedModel::layout_options() const {
  return {options.first_bucket_bytes, options.bucket_bytes, options.sharded ? comm.size() : 1};
}

void DistributedModel::fail(const std::string& what, const std::string& hint) {
  const Error error(fmt::format("rank {}: {}", comm.world_rank(), what), hint);
  comm.abort(error.what());
  throw error;
}

}  // namespace lockstep::parallel
