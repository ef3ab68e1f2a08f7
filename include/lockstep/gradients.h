// The gradients of data parallelism, in three steps that build on each other: averaged one by one (naive), averaged by
// hooks while backward runs, and in buckets whose reduction can be replaced (communication hooks).
//
// DistributedDataParallel (data_parallel.h) does all of this by itself.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/work.h"

namespace lockstep {

class Communicator;

// Runs this rank's forward and returns its loss. Gradients are averaged over ranks. If ranks have different numbers of
// rows, the loss must therefore be scaled by (rows on this rank) * ranks / (rows on all ranks); the average is then the
// gradient of the whole batch.
using Loss = std::function<torch::Tensor()>;

// --- naive: forward, backward, then one all-reduce per parameter ---
//
//   forward ──> backward ──> all-reduce p0 ──> all-reduce p1 ──> ... ──> optimizer
//
// The result is right, but there are two costs: no rank computes while gradients travel, and every small parameter pays
// the whole latency of a collective. Hooks remove the first cost, DistributedDataParallel both.

// Must be called after backward. Every gradient becomes the mean over all ranks. A missing gradient counts as zeros.
void average_gradients(const std::vector<torch::Tensor>& parameters, Communicator& comm);

// One whole training step. Returns this rank's loss. All ranks must hold the same weights.
torch::Tensor naive_data_parallel_step(const std::vector<torch::Tensor>& parameters, torch::optim::Optimizer& optimizer,
                                       Communicator& comm, const Loss& loss);

// --- hooks: the all-reduce of a gradient starts as soon as it is ready, while backward continues ---
//
//   backward       |--layer 3--|--layer 2--|--layer 1--|--layer 0--| wait
//   communication              |-- g3 --|  |-- g2 --|  |-- g1 --|  |-- g0 --|
//
// A hook is a post-hook of the node that accumulates the gradient.
//
// Do not accumulate gradients with these hooks: every backward averages the whole gradient, so a second backward before
// the optimizer's step sends every byte again. The result is right, but costs twice the communication.
// DistributedDataParallel has no_sync() for that purpose.

// Times of the last backward, one row per parameter, in the order in which the hooks ran: the last layer comes first.
class HookTracker {
 public:
  struct Row {
    std::string parameter;
    std::size_t bytes = 0;
    double ready = 0;  // seconds since the first gradient was ready
    double began = 0;  // start of its communication, on the same clock
    double ended = 0;
  };

  const std::vector<Row>& rows() const { return rows_; }
  double backward_end() const { return backward_end_; }  // end of this rank's own backward, on the same clock
  double communication() const;                          // seconds, summed over all parameters
  double overlapped() const;                             // seconds of communication that lie before the end of backward
  // A table with one line per parameter and a bar that shows its times.
  std::string table() const;

 private:
  friend class DdpHooks;
  std::vector<Row> rows_;
  double backward_end_ = 0;
};

// The hooks on a module's parameters; they are removed when this object is destroyed. After each backward, all
// gradients are the mean over all ranks.
class DdpHooks {
 public:
  DdpHooks(const torch::nn::Module& module, Communicator& comm, HookTracker* tracker);
  ~DdpHooks();
  DdpHooks(DdpHooks&&) noexcept;
  DdpHooks& operator=(DdpHooks&&) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `comm` and `tracker` must outlive the hooks. Ranks must hold the same weights, and every backward must reach every
// parameter.
[[nodiscard]] inline DdpHooks register_ddp_hooks(const torch::nn::Module& module, Communicator& comm,
                                                 HookTracker* tracker = nullptr) {
  return {module, comm, tracker};
}

// --- buckets: gradients that travel together ---

// A bucket: gradients that are communicated together. It is one piece of memory with elements of one type. Every
// gradient in it is a tensor over its part of this memory, so the optimizer reads it without a copy. A gradient that
// zero_grad() has dropped is copied in once; one that was zeroed in place is not copied.
class GradientBucket {
 public:
  GradientBucket(std::size_t index, std::size_t buckets, torch::Tensor flat, std::vector<torch::Tensor> gradients,
                 std::vector<std::size_t> parameters)
      : index_(index),
        buckets_(buckets),
        flat_(std::move(flat)),
        gradients_(std::move(gradients)),
        parameters_(std::move(parameters)) {}

  std::size_t index() const { return index_; }  // buckets are reduced in the order of their indices on all ranks
  bool is_last() const { return index_ + 1 == buckets_; }
  // The whole bucket as a tensor of one dimension. The gaps between gradients hold zeros.
  const torch::Tensor& flat() const { return flat_; }
  // The gradients in the bucket, and for each of them the index of its parameter in DistributedDataParallel's list of
  // trained parameters.
  const std::vector<torch::Tensor>& gradients() const { return gradients_; }
  const std::vector<std::size_t>& parameters() const { return parameters_; }
  std::size_t bytes() const { return flat_.nbytes(); }

 private:
  std::size_t index_;
  std::size_t buckets_;
  torch::Tensor flat_;
  std::vector<torch::Tensor> gradients_;
  std::vector<std::size_t> parameters_;
};

// A communication hook: a function that replaces the all-reduce of a bucket. It is called when all gradients of the
// bucket are in it, on the thread that runs backward, in the same order on all ranks. It returns a Work; when this is
// done, the bucket must hold the mean over all ranks. It must use the communicator that it is given.
// examples/custom_comm_hook.cpp shows one.
using CommHook = std::function<Work(Communicator&, GradientBucket&)>;

// Does what DistributedDataParallel does without a hook.
CommHook all_reduce_hook();

// Gradients travel in a 16-bit type. They are rounded once before they are sent, summed in float32, and the mean is
// rounded once more. bfloat16 has the range of float32. float16 has three more bits of precision, but values above
// 65504 become infinite.
// One hook may serve several models of a rank. Ranks that are threads need one hook each. Buckets of types other than
// float32 and float64 travel unchanged.
CommHook bfloat16_hook();
CommHook float16_hook();

}  // namespace lockstep
