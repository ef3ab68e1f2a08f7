// The options of DistributedDataParallel.
#pragma once

#include <cstddef>
#include <functional>

#include "lockstep/comm/work.h"

namespace lockstep {

class Communicator;
class GradientBucket;

// A function that replaces the all-reduce of a bucket. It is called when all gradients of the bucket are in it, on the
// thread that runs backward, in the same order on all ranks. It returns a Work; when this is done, the bucket must hold
// the mean over all ranks. It must use the communicator that it is given.
using CommHook = std::function<Work(Communicator&, GradientBucket&)>;

struct DdpOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20;
  // The first bucket is smaller, so that communication starts early in backward.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  // If true, a parameter that a backward does not reach counts as zeros on this rank, and a parameter that no rank
  // reached keeps its gradient. If false, such a parameter is an error that names it.
  bool allow_unused = false;
  // Promises that the graph is the same at every step. The graph is learned from the first backward, and every later
  // backward is compared with it. This allows unused parameters at no cost, and parameters whose gradient comes in
  // several parts.
  bool static_graph = false;
  // At every forward in training mode, all ranks take over the buffers of rank 0 (such as BatchNorm's statistics).
  bool broadcast_buffers = true;
  // Parameters and gradients lie back to back, and parameters() returns blocks of them (flat.h).
  bool flat = false;
  // backward() returns while buckets are still in flight, and finish() waits for them. This is for callers that want to
  // do other work before they wait, such as the stages of a pipeline. Cannot be combined with sharded.
  bool deferred = false;
  // Implies flat. Each rank updates only its share of the parameters, and keeps the optimizer's state only for this
  // share. The parameters exist once for all ranks (docs/sharded.md).
  bool sharded = false;
  // The size of a block with flat. Adam works on six arrays of this size at a time, which should fit a core's cache.
  // Measured time of the optimizer's step with 2 MB of L2 cache, 16 x 1024, sharded on 2 ranks: 34 ms with 64 KiB, 26
  // with 128, 25 with 256, 26 with 512, 28 with 1024.
  std::size_t block_bytes = std::size_t{256} << 10;
  CommHook hook = {};
  // The model's name in error messages; if empty, the name of the module's class. If two models are built in a
  // different order on one rank, this is detected if their names or their parameters differ.
  std::string name = {};
};

struct JoinOptions {
  // Divide gradients by the number of ranks that still have data, instead of by the number of all ranks.
  bool divide_by_active = false;
};

}  // namespace lockstep
