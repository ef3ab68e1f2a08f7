// Gradient hooks: the all-reduce of a parameter's gradient starts as soon as the gradient is ready, while backward
// continues.
//
//   backward       |--layer 3--|--layer 2--|--layer 1--|--layer 0--| wait
//   communication              |-- g3 --|  |-- g2 --|  |-- g1 --|  |-- g0 --|
//
// A hook is a post-hook of the node that accumulates the gradient (autograd.h says why it is not a hook on the tensor).
//
// Do not accumulate gradients with these hooks: every backward averages the whole gradient, so a second backward before
// the optimizer's step sends every byte again. The result is right, but costs twice the communication.
// DistributedDataParallel has no_sync() for that purpose.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"

namespace lockstep {

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

}  // namespace lockstep
