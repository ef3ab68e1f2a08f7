// The parameters that a backward does not reach. They are found at its end. Then they are either allowed or an error
// that names them. A parameter that no rank has used is left as it was.
//
// The Reducer and its OptimizerSide call it, on the thread that runs backward. In one backward the calls come in this
// order: begin_backward(), mark_used(), find_missing(), settle(). Inside no_sync() there is only mark_used(): the next
// backward that reduces is about these parameters, too.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/parallel/data/bucket_reductions.h"
#include "lockstep/parallel/data/distributed_model.h"

namespace lockstep::parallel {

class UnusedParameters {
 public:
  explicit UnusedParameters(DistributedModel& model) : model_(model), used_(model.tensors.trained.size(), 0) {}

  void begin_backward() { missing_.clear(); }
  // The parameter has a gradient of this rank, which was not reduced yet.
  void mark_used(std::size_t parameter) { used_[parameter] = 1; }
  // The gradients that were not reduced yet are dropped.
  void forget();
  // Adds what `buckets` do not have yet. If the gradient of a parameter came inside no_sync(), it is added now. Any
  // other parameter is unused: its old gradient is added if it has one (with sharded: never), and zeros otherwise. If
  // unused parameters are not allowed, tells all ranks and throws Error, which names them.
  void find_missing(BucketReductions& buckets);
  // Collective if unused parameters are allowed. Must be called when the buckets are reduced. A missing parameter that
  // another rank has used gets its gradient on this rank, too. A parameter that no rank has used gets back what it had
  // before.
  void settle();

 private:
  bool allowed() const { return model_.options.allow_unused || model_.options.static_graph; }
  void share_used();

  struct Missing {
    std::size_t parameter;
    torch::Tensor old;  // its gradient before this backward, if it had one
    bool in_place;      // whether `old` lies in the bucket
  };

  DistributedModel& model_;
  std::vector<std::uint8_t> used_;  // by parameter: used since the last reduction; after share_used(), by any rank
  std::vector<Missing> missing_;
  std::vector<std::uint8_t> graph_used_;  // static graph: used_ over all ranks, which never changes
};

}  // namespace lockstep::parallel
