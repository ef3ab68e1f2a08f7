#include "lockstep/parallel/data/distributed_model.h"

#include <fmt/format.h>
#include <algorithm>

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
  if (options.fused_update && !options.sharded)
    throw UsageError("fused_update without sharded: a rank that updates everything would average everything alone",
                     "sharded as well");
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

// The communication thread needs a core of its own, unless it waits for a network most of the time. Between ranks of
// one host there is no network: their own cores move the bytes, also through sockets. What a communication hook does is
// not known.
bool should_overlap(const DdpOptions& options, const Communicator& comm) {
  if (options.deferred || options.hook) return true;
  if (options.overlap != Overlap::automatic) return options.overlap == Overlap::on;
  const int here = comm.ranks_on_this_host();
  return here < comm.size() || here < allowed_cores();
}

// A rank alone has nothing to average. The optimizers of lockstep/optimizer.h sum float32 only, and in the order in
// which `direct` does.
bool can_fuse(const DdpOptions& options, const Communicator& comm, const Layout& layout) {
  return options.fused_update && comm.size() > 1 &&
         std::all_of(layout.buckets.begin(), layout.buckets.end(), [&](const BucketLayout& bucket) {
           return bucket.dtype == at::kFloat &&
                  comm.choice(Op::reduce_scatter, bucket.count, DType::float32) == Algorithm::direct;
         });
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
                make_layout(items_of(tensors.trained), reverse_order(tensors.trained.size()), layout_options()), comm),
      fuses(can_fuse(options, comm, gradients.layout())) {}

LayoutOptions DistributedModel::layout_options() const {
  return {options.first_bucket_bytes, options.bucket_bytes, options.sharded ? comm.size() : 1};
}

void DistributedModel::fail(const std::string& what, const std::string& hint) {
  const Error error(fmt::format("rank {}: {}", comm.world_rank(), what), hint);
  comm.abort(error.what());
  throw error;
}

}  // namespace lockstep::parallel
