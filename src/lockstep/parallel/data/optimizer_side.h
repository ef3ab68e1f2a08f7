// The optimizer's side of a Reducer: the parameters or blocks that it updates, the gradients that it zeroes, replaces
// or clips, and with sharded the barriers between its updates and the ranks that read the parameters.
//
// The Reducer calls it, on the thread that runs forward or backward. Without flat, only tensors() and clip_grad_norm()
// do anything.
//
// Sharded: after a reduction a rank has the mean only for its share of the gradients, and the rest of their memory is
// undefined. So:
//  1. The next gradients replace what is in the buckets; those that follow, inside no_sync(), are added to them.
//  2. The optimizer's step, or zero_grad(), must come before the next backward that reduces.
//  3. There is a barrier between the last forward or backward that reads parameters and the first update, and another
//     one between the updates and the next forward or backward, whichever comes first. With fused_update, updates also
//     read the other ranks' gradients, which that backward changes.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/parallel/data/distributed_model.h"
#include "lockstep/parallel/data/flat.h"
#include "lockstep/parallel/data/unused_parameters.h"

namespace lockstep::parallel {

class OptimizerSide {
 public:
  // Collective. With flat, the parameters of all ranks are those of rank 0 when it returns.
  OptimizerSide(DistributedModel& model, UnusedParameters& unused);

  // What the optimizer updates.
  std::vector<torch::Tensor> tensors() const;
  double clip_grad_norm(double max_norm, double norm_type);
  // Throws UsageError if the data of a parameter is no longer in the flat memory.
  void check_places() const;

  // Both are collective while the ranks have not met after the optimizer's step, which is the same on all ranks.
  void begin_forward();
  void end_forward();
  // With flat: must be called in every backward before the first gradient is accumulated. Calls after the first have no
  // effect.
  void begin_accumulation();
  // Must be called when no backward runs any more. One that threw has not called back.
  void leave_backward() { accumulating_ = false; }
  // With flat: must be called just before autograd accumulates this gradient.
  void before_accumulation(std::size_t parameter);
  // Must be called before the first bucket of a backward is reduced. Tells all ranks and throws Error if rule 2 is
  // broken.
  void begin_reduction();
  // Collective. For a model that fuses: must be called when all gradients of this rank lie in their places. If those of
  // all ranks lie where every rank can read them, leaves it to the optimizer to average them; otherwise returns false.
  bool leave_to_optimizer();
  // Collective with sharded. Must be called when all buckets are reduced, or their gradients are left to the optimizer.
  void end_reduction();
  // Makes the gradients that were left to the optimizer.
  void average();
  // Collective with sharded, after a reduction. Must be called after the optimizer's step. When it returns, this rank
  // sees all updates of the other ranks.
  void sync();

 private:
  void meet(bool stepped);
  void end_accumulation();

  DistributedModel& model_;
  UnusedParameters& unused_;
  std::optional<FlatParameters> flat_;
  bool accumulating_ = false;      // a backward is in progress, whether it reduces or not
  bool reducing_ = false;          // the last backward, or the one in progress, reduces
  std::vector<bool> fresh_;        // sharded, by parameter: overwritten since the last reduction
  bool reduced_and_kept_ = false;  // sharded: the last reduction's gradients were neither used nor zeroed
  // Sharded: true from the end of a reduction until sync(), or until a forward in which a rank has seen its optimizer's
  // step.
  bool unsynced_ = false;
};

}  // namespace lockstep::parallel
