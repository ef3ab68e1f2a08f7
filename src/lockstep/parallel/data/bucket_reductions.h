// The buckets of one backward: which gradients they still wait for, and their reductions.
//
//   add() ─> the gradient lies in its bucket ─> bucket full? ─> all-reduce, in the order of the buckets
//   reduce_rest() ─> wait()
//
// The Reducer and its parts call it, on the thread that runs backward. In one backward the calls come in this order:
// begin(), then add() or add_in_place() once for every parameter, reduce_full(), reduce_rest(), wait(), rebuild(). On a
// rank that has joined: begin(), reduce_zeros(), wait(), rebuild().
//
// Invariants:
//  1. Buckets are reduced in the order of their indices on all ranks, whatever the order in which they became full.
//  2. With overlap, all buckets but the last are reduced on the communication thread. The last one is a synchronous
//     call, because there is no computation left to overlap with. It runs on the thread that ran backward if no other
//     bucket is in flight, and otherwise after the others on the communication thread. With deferred, the last bucket
//     is treated like the others. Without overlap, and on a rank that has joined, all buckets are synchronous calls,
//     and none is made before backward has ended: another model's backward, or the program's own collectives, may be
//     part of the same backward, and a call inside of it that waits for other ranks could wait for ever. A
//     communication hook is called on the thread that calls this object, for all buckets.
//  3. With fused_update no bucket is reduced here, unless reduce_all() is called.
//  4. The buckets are rebuilt at most once, with flat never: the optimizer holds the flat blocks.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "lockstep/parallel/data/distributed_model.h"
#include "lockstep/parallel/data/joining.h"
#include "lockstep/parallel/data/step_times.h"
#include "lockstep/work.h"

namespace lockstep::parallel {

class BucketReductions {
 public:
  // All references must outlive this object.
  BucketReductions(DistributedModel& model, const Joining& joining, StepTimes& times);

  // All gradients are still to come.
  void begin();
  // The gradient of a parameter has come. Brings it into its bucket, and starts the reductions that may start now.
  // Tells all ranks and throws Error if it was added before.
  void add(std::size_t parameter);
  // The caller has written the gradient into its bucket. Starts no reduction: reduce_full() must follow.
  void add_in_place(std::size_t parameter);
  // Brings in the gradients for which there was no room when they came. Must be called at the end of backward, before
  // anything else is added.
  void add_late();
  bool has(std::size_t parameter) const { return ready_[parameter]; }
  bool has_any() const { return std::find(ready_.begin(), ready_.end(), true) != ready_.end(); }
  // With overlap: starts the reductions of full buckets whose turn has come, except that of the last bucket.
  void reduce_full();
  // Must be called after backward: reduces all others.
  void reduce_rest();
  // Reduces all buckets, with zeros as the gradients of this rank.
  void reduce_zeros();
  // For a model that fuses, whose buckets are not reduced otherwise: reduces all of them now.
  void reduce_all();
  void wait();

  // Collective. Rebuilds the buckets in the order in which the gradients of rank `root` came, which is the best guess
  // for the next steps. Only the first call has an effect.
  void rebuild(Rank root);

 private:
  struct InFlight {
    Work work;
    Work::Times times;  // of a reduction that ran on this thread
  };

  void arrive(std::size_t parameter);
  void count(std::size_t parameter);
  void reduce(std::size_t index, bool now);
  void begin_reduction(std::size_t index, bool now);

  DistributedModel& model_;
  const Joining& joining_;
  StepTimes& times_;
  std::vector<bool> ready_;           // by parameter: its gradient has come
  std::vector<std::size_t> late_;     // parameters whose gradient has come, but is not yet in its bucket
  std::vector<std::size_t> pending_;  // by bucket: number of gradients that have not come yet
  std::size_t next_ = 0;              // the bucket that is reduced next
  std::vector<InFlight> flights_;     // by bucket
  // The order in which gradients came. None when buckets are not to be rebuilt any more.
  std::optional<std::vector<std::size_t>> order_;
};

}  // namespace lockstep::parallel
