// What DdpOptions::static_graph promises: every backward brings every gradient as often as the first one did.
//
// The first backward is counted, and nothing is reduced before its end. In later ones, a gradient is whole when it has
// come as often as in the first.
//
// The Reducer calls it, on the thread that runs backward. The functions that throw tell the other ranks.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/parallel/data/bucket_reductions.h"
#include "lockstep/parallel/data/distributed_model.h"

namespace lockstep::parallel {

class StaticGraph {
 public:
  explicit StaticGraph(DistributedModel& model) : model_(model), seen_(model.tensors.trained.size()) {}

  void begin_backward() { seen_.assign(seen_.size(), 0); }
  // Counts a gradient, or a part of one. Returns true if it is whole. In the first backward this is not known yet, and
  // the result is false.
  bool count(std::size_t parameter) {
    ++seen_[parameter];
    return expected_ && seen_[parameter] >= (*expected_)[parameter];
  }
  // Throws Error if the first backward brought no gradient of this parameter.
  void check_inside_no_sync(std::size_t parameter);
  // The first backward: adds all gradients that came to `buckets`. Later ones: throws Error if a gradient came more or
  // less often than in the first.
  void end_backward(BucketReductions& buckets);

 private:
  DistributedModel& model_;
  std::vector<int> seen_;                     // by parameter: how often its gradient came in this backward
  std::optional<std::vector<int>> expected_;  // seen_ at the end of the first backward
};

}  // namespace lockstep::parallel
