// What a user can choose about DistributedDataParallel.
#pragma once

#include <cstddef>
#include <functional>

#include "lockstep/comm/work.h"

namespace lockstep {

class Communicator;
class GradientBucket;

// Replaces the all-reduce of a bucket. Called when all its gradients are in it, on the thread that runs backward, in
// the same order on all ranks; gives a work after which the bucket holds the mean over all ranks. It must use the
// communicator that it is given.
using CommHook = std::function<Work(Communicator&, GradientBucket&)>;

struct DdpOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20;
  // Smaller, so that communication starts early in backward.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  // Parameters that a backward does not reach count as zeros on this rank; what no rank reached keeps its gradient.
  // Off, such a parameter is an error that names it.
  bool allow_unused = false;
  // The graph is the same at every step: learnt from the first backward, and compared from then on. Allows unused
  // parameters at no cost, and ones whose gradient comes in several parts.
  bool static_graph = false;
  // Buffers (BatchNorm's statistics) are rank 0's at every forward in training.
  bool broadcast_buffers = true;
  // Parameters and gradients lie back to back, and parameters() hands out blocks of them (flat.h).
  bool flat = false;
  // backward() returns while buckets are under way, and finish() waits for them: for callers that want to do other work
  // before they wait, as the stages of a pipeline do. Not with sharded.
  bool deferred = false;
  // flat, and each rank keeps and updates only its share; parameters live once for all ranks (docs/sharded.md).
  bool sharded = false;
  // Adam works on six arrays of this size at a time, which should fit a core's cache. Measured on 2 MB of L2, 16 x
  // 1024, 2 ranks: 34 ms a step with 64 KiB, 26 with 128, 25 with 256, 26 with 512, 28 with 1024.
  std::size_t block_bytes = std::size_t{256} << 10;
  CommHook hook = {};
  // Says in errors which model it is; empty: the module's class. Two models that are built in another order on one rank
  // are noticed when their names or their parameters differ.
  std::string name = {};
};

struct JoinOptions {
  // Gradients are divided by the ranks that still have data instead of by the world.
  bool divide_by_active = false;
};

}  // namespace lockstep
