#include "lockstep/parallel/data/comm_hooks.h"

#include <map>
#include <memory>

#include "lockstep/comm/tensor.h"
#include "lockstep/parallel/data/bucket.h"

namespace lockstep {
namespace {

// Another communicator may have come to lie where the buffer's was.
bool lost(const Communicator& comm, const torch::Tensor& buffer) {
  return comm.transport() == "shm" && buffer.numel() > 0 && !comm.in_arena(buffer.data_ptr());
}

CommHook rounded(at::ScalarType half) {
  // A buffer in the arena for each bucket of each user: copies of a hook share them, and one hook may serve several
  // models. Buckets change their size once, when they are rebuilt.
  using Key = std::pair<const Communicator*, std::size_t>;
  const auto buffers = std::make_shared<std::map<Key, torch::Tensor>>();
  return [half, buffers](Communicator& comm, GradientBucket& bucket) {
    const torch::Tensor flat = bucket.flat();
    if (flat.scalar_type() != at::kFloat && flat.scalar_type() != at::kDouble) return all_reduce_mean_async(comm, flat);
    torch::Tensor& buffer = (*buffers)[{&comm, bucket.index()}];
    if (!buffer.defined() || buffer.numel() != flat.numel() || lost(comm, buffer)) {
      buffer.reset();  // before the new one comes
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
