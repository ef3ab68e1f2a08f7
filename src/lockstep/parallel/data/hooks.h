// Gradient hooks: the all-reduce of a parameter starts as soon as its gradient is there, while backward goes on.
//
//   backward       |--layer 3--|--layer 2--|--layer 1--|--layer 0--| wait
//   communication              |-- g3 --|  |-- g2 --|  |-- g1 --|  |-- g0 --|
//
// A hook is a post-hook of the node that accumulates the gradient (autograd.h says why not one on the tensor).
//
// Do not accumulate with these hooks: every backward averages all that is there, so a second one before the step sends
// every byte again. The result is right, but paid for twice. DistributedDataParallel has no_sync() for that.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"

namespace lockstep {

// What happened in the last backward, a row a parameter in the order of the hooks: the last layer comes first.
class HookTracker {
 public:
  struct Row {
    std::string parameter;
    std::size_t bytes = 0;
    double ready = 0;  // seconds since the first gradient was ready
    double began = 0;  // its communication
    double ended = 0;
  };

  const std::vector<Row>& rows() const { return rows_; }
  double backward_end() const { return backward_end_; }  // this rank's own, on the same clock
  double communication() const;                          // seconds, all parameters
  double overlapped() const;                             // of these, how many lay before the end of backward
  // A table with one line a parameter and a bar that shows when.
  std::string table() const;

 private:
  friend class DdpHooks;
  std::vector<Row> rows_;
  double backward_end_ = 0;
};

// The hooks, until it is destroyed. After each backward all gradients are the mean over all ranks.
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

// `comm` and `tracker` must outlive the hooks. Ranks must hold the same weights, and use every parameter.
[[nodiscard]] inline DdpHooks register_ddp_hooks(const torch::nn::Module& module, Communicator& comm,
                                                 HookTracker* tracker = nullptr) {
  return {module, comm, tracker};
}

}  // namespace lockstep
