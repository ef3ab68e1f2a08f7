// The part of DistributedDataParallel that works during backward: it notices when gradients become ready, and reduces
// their buckets while backward continues, or after it (Overlap in kinds.h).
//
//   hook of a parameter ─> its gradient lies in its bucket ─> bucket full? ─> all-reduce, in the order of the buckets
//   end of backward ─> parameters without a gradient are unused ─> the last bucket ─> wait for all
//
// A Reducer is a small state machine. What happens in a phase is the work of its parts, which have a file each:
//
//   phase        what is under way                                  next phase
//   idle         no backward that reduces                           reached: backward comes to an output of the model
//                                                                   collecting: the first gradient comes
//   reached      a backward, and no gradient has come yet           collecting: the first gradient comes; with
//                                                                   allow_unused, at once
//                                                                   idle: the end of this backward, or a new forward
//   collecting   gradients come, and with overlap full buckets are  in_flight: the end of this backward
//                reduced; at the end all that are left
//   in_flight    all reductions have begun, and some may still run  finishing: at once; with deferred, in finish()
//   finishing    this rank waits for its buckets                    idle: all gradients are the mean over all ranks
//
// An exception leaves the phase as it is. After one in collecting or finishing, the gradients are undefined, so the
// next forward throws.
//
// Invariants:
//  1. Whether a backward reduces gradients is decided when it reaches this model, never earlier: a no_sync() around the
//     forward alone has no effect on it. Inside no_sync(), the phase does not change.
//  2. The callback for the end of backward is queued when backward comes to an output, or at the latest at the first
//     gradient. If it is queued several times, the first call does the work.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/communicator.h"
#include "lockstep/data_parallel.h"
#include "lockstep/parallel/data/autograd.h"
#include "lockstep/parallel/data/bucket_reductions.h"
#include "lockstep/parallel/data/distributed_model.h"
#include "lockstep/parallel/data/joining.h"
#include "lockstep/parallel/data/module_checks.h"
#include "lockstep/parallel/data/optimizer_side.h"
#include "lockstep/parallel/data/static_graph.h"
#include "lockstep/parallel/data/step_times.h"
#include "lockstep/parallel/data/unused_parameters.h"

namespace lockstep::parallel {

// The contract is that of DistributedDataParallel (data_parallel.h).
class Reducer {
 public:
  Reducer(torch::nn::Module& module, Communicator& comm, DdpOptions options);
  Reducer(const Reducer&) = delete;

  // Enclose a forward pass, which began after begin_forward().
  void begin_forward();
  void end_forward(Clock::time_point began) { times_.end_forward(began); }
  // Must be called at the end of a forward that did not throw.
  void forward_succeeded() { optimizer_side_.end_forward(); }
  // Must be called for every tensor in the result of a forward. With allow_unused, a backward that reaches `output` but
  // no parameter then counts as zeros.
  void watch(const torch::Tensor& output);

  std::vector<torch::Tensor> optimized() const { return optimizer_side_.tensors(); }
  // With deferred: waits for the buckets of the last backward. Returns at once if there are none.
  void finish();
  NoSync no_sync() { return NoSync(no_sync_); }
  void join(const std::function<void()>& body, const JoinOptions& options);
  void sync() { optimizer_side_.sync(); }
  void average_gradients() { optimizer_side_.average(); }
  double clip_grad_norm(double max_norm, double norm_type) {
    return optimizer_side_.clip_grad_norm(max_norm, norm_type);
  }
  const DdpStatistics& statistics() const { return times_.statistics(); }
  std::string layout() const;
  Communicator& communicator() { return model_.comm; }

 private:
  enum class Phase : std::uint8_t { idle, reached, collecting, in_flight, finishing };  // in the order of time

  void check_phase() const;
  void check_module();
  void share_buffers();

  void output_reached();
  void begin_any_backward();
  void leave_backward();
  void after_accumulation(std::size_t parameter);
  void begin_backward();
  void ask_for_end();
  void end_of_backward();
  void finish_since(Clock::time_point end_of_backward);
  void begin_buckets();
  void end_buckets();
  void stand_in();

  DistributedModel model_;
  ModuleChecks checks_{model_};
  StepTimes times_;
  Joining joining_{model_};
  BucketReductions buckets_{model_, joining_, times_};
  UnusedParameters unused_{model_};
  std::optional<StaticGraph> graph_;  // with static_graph
  OptimizerSide optimizer_side_{model_, unused_};

  Phase phase_ = Phase::idle;
  std::uint32_t steps_ = 0;      // number of forwards that train; collectives carry it
  int no_sync_ = 0;              // number of guards of no_sync() that exist
  std::weak_ptr<int> backward_;  // alive while the last backward runs

  const std::shared_ptr<Reducer*> self_ = std::make_shared<Reducer*>(this);  // for outputs, which may outlive this
  GradientHooks hooks_{GradientHooks::Purpose::average};  // last, so it is destroyed first: hooks call this object
};

}  // namespace lockstep::parallel
