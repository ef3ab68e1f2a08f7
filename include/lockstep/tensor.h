// The communicator's operations on torch::Tensor. Only programs that use libtorch include this header.
//
//   comm.all_reduce(parameter.grad(), lockstep::ReduceOp::mean);
//   lockstep::all_reduce_mean(comm, parameter.grad());             the same
//
// The functions below that are named like an operation of the communicator are also members of it. all_reduce_mean, its
// asynchronous version and allocate_tensor are not.
//
// Tensors. A tensor must be dense, on the CPU, and of a type that DType names; any other throws UsageError on this rank
// alone. Elements travel in the order of their indices. The counts must fit, but the shapes need not. A contiguous
// tensor is used in place. Any other tensor is copied, and the result is copied back into it; a tensor that takes a
// result must not have elements that share memory (as after expand).
//
// Autograd. Nothing is recorded: the operations change the data, also that of a leaf that requires grad. They increment
// the tensor's version counter, so a backward that needs the old data throws.
//
// Works. A work keeps its tensors alive. The result is in the tensor when wait() has returned; do not use the tensor
// before that. Destroying a work also waits for it, because its memory is in use, but does not copy a result back.
//
// For everything else communicator.h applies.
#pragma once

#include <torch/types.h>

#include "lockstep/communicator.h"

namespace lockstep {

template <>
inline constexpr bool is_tensor<torch::Tensor> = true;

// In place.
void all_reduce(Communicator& comm, const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum,
                const CallOptions& options = {});
void all_reduce_mean(Communicator& comm, const torch::Tensor& tensor, const CallOptions& options = {});
void reduce(Communicator& comm, const torch::Tensor& tensor, ReduceOp op, Rank root, const CallOptions& options = {});
void broadcast(Communicator& comm, const torch::Tensor& tensor, Rank root, const CallOptions& options = {});
// From one tensor into another. In scatter and gather, `whole` is ignored on ranks other than the root: {} is enough.
void scatter(Communicator& comm, const torch::Tensor& whole, const torch::Tensor& mine, Rank root,
             const CallOptions& options = {});
void gather(Communicator& comm, const torch::Tensor& mine, const torch::Tensor& whole, Rank root,
            const CallOptions& options = {});
void all_gather(Communicator& comm, const torch::Tensor& mine, const torch::Tensor& whole,
                const CallOptions& options = {});
void reduce_scatter(Communicator& comm, const torch::Tensor& whole, const torch::Tensor& mine,
                    ReduceOp op = ReduceOp::sum, const CallOptions& options = {});
void all_to_all(Communicator& comm, const torch::Tensor& input, const torch::Tensor& output,
                const CallOptions& options = {});
void send(Communicator& comm, Rank to, const torch::Tensor& tensor, Tag tag = 0);
void recv(Communicator& comm, Rank from, const torch::Tensor& tensor, Tag tag = 0);

// The same operations; they are in flight when the call returns.
[[nodiscard]] Work all_reduce_async(Communicator& comm, const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum,
                                    const CallOptions& options = {});
[[nodiscard]] Work all_reduce_mean_async(Communicator& comm, const torch::Tensor& tensor,
                                         const CallOptions& options = {});
[[nodiscard]] Work reduce_async(Communicator& comm, const torch::Tensor& tensor, ReduceOp op, Rank root,
                                const CallOptions& options = {});
[[nodiscard]] Work broadcast_async(Communicator& comm, const torch::Tensor& tensor, Rank root,
                                   const CallOptions& options = {});
[[nodiscard]] Work scatter_async(Communicator& comm, const torch::Tensor& whole, const torch::Tensor& mine, Rank root,
                                 const CallOptions& options = {});
[[nodiscard]] Work gather_async(Communicator& comm, const torch::Tensor& mine, const torch::Tensor& whole, Rank root,
                                const CallOptions& options = {});
[[nodiscard]] Work all_gather_async(Communicator& comm, const torch::Tensor& mine, const torch::Tensor& whole,
                                    const CallOptions& options = {});
[[nodiscard]] Work reduce_scatter_async(Communicator& comm, const torch::Tensor& whole, const torch::Tensor& mine,
                                        ReduceOp op = ReduceOp::sum, const CallOptions& options = {});
[[nodiscard]] Work all_to_all_async(Communicator& comm, const torch::Tensor& input, const torch::Tensor& output,
                                    const CallOptions& options = {});
[[nodiscard]] Work send_async(Communicator& comm, Rank to, const torch::Tensor& tensor, Tag tag = 0);
[[nodiscard]] Work recv_async(Communicator& comm, Rank from, const torch::Tensor& tensor, Tag tag = 0);

// Returns a new tensor of shape [size, *mine.sizes()]. `mine` must have the same shape on all ranks.
[[nodiscard]] torch::Tensor all_gather(Communicator& comm, const torch::Tensor& mine, const CallOptions& options = {});

// Collective: a tensor of zeros in the arena. Its contiguous views are in the arena, too. The memory outlives the
// communicator.
[[nodiscard]] torch::Tensor allocate_tensor(Communicator& comm, at::IntArrayRef sizes,
                                            at::ScalarType dtype = at::kFloat);

// The memory of a contiguous tensor, which must outlive the buffer. Throws UsageError if the tensor is not contiguous.
Buffer as_buffer(const torch::Tensor& tensor);

}  // namespace lockstep
