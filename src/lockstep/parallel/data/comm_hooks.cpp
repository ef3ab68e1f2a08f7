#include "lockstep/gradients.h"

#include <map>
#include <memory>

#include "lockstep/tensor.h"

namespace lockstep {
namespace {

// True if the buffer belongs to an earlier communicator that lay at the same address as `comm`.
bool lost(const Communicator& comm, const torch::Tensor& buffer) {
  return comm.transport_kind() == TransportKind::shm && buffer.numel() > 0 && !comm.in_arena(buffer.data_ptr());
}

CommHook rounded(at::ScalarType half) {
  // One buffer in the arena per communicator and bucket. Copies of a hook share the buffers, and one hook may serve
  // several models. A bucket changes its size at most once, when the buckets are rebuilt.
  using Key = std::pair<const Communicator*, std::size_t>;
  const auto buffers = std::make_shared<std::map<Key, torch::Tensor>>();
  return [half, buffers](Communicator& comm, GradientBucket& bucket) {
    const torch::Tensor flat = bucket.flat();
    if (flat.scalar_type() != at::kFloat && flat.scalar_type() != at::kDouble) return all_reduce_mean_async(comm, flat);
    torch::Tensor& buffer = (*buffers)[{&comm, bucket.index()}];
    if (!buffer.defined() || buffer.numel() != flat.numel() || lost(comm, buffer)) {
      buffer.reset();  // frees the old memory before the new is allocated
      buffer = allocate_tensor(comm, flat.sizes(), half);
    }
    buffer.copy_(flat);
    return then(all_reduce_mean_async(comm, buffer), [flat, buffer] {
      const torch::NoGradGuard no_grad;
      flat.copy_(buffer);
    });
  };
}

}  // namespace

CommHook all_reduce_hook() {
  return [](Communicator& comm, GradientBucket& bucket) { return all_reduce_mean_async(comm, bucket.flat()); };
}
CommHook bfloat16_hook() { return rounded(at::kBFloat16); }
CommHook float16_hook() { return rounded(at::kHalf); }

}  // namespace lockstep
