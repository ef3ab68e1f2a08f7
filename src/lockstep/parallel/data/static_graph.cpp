#include "lockstep/parallel/data/static_graph.h"

#include <fmt/format.h>

namespace lockstep::parallel {

void StaticGraph::check_inside_no_sync(std::size_t parameter) {
  if (expected_ && (*expected_)[parameter] == 0)
    model_.fail(
        fmt::format("the graph is not static: the gradient of {} came inside no_sync, and not in the first backward",
                    model_.tensors.trained[parameter].name),
        "DdpOptions::static_graph = false, with allow_unused");
}

void StaticGraph::end_backward(BucketReductions& buckets) {
  if (!expected_) {
    expected_ = seen_;
    for (std::size_t i = seen_.size(); i-- > 0;)
      if (seen_[i] > 0) buckets.add(i);
    return;
  }
  for (std::size_t i = 0; i < seen_.size(); ++i)
    if (seen_[i] != (*expected_)[i])
      model_.fail(
          fmt::format("the graph is not static: the gradient of {} came {} times, and {} times in the first backward",
                      model_.tensors.trained[i].name, seen_[i], (*expected_)[i]),
          "DdpOptions::static_graph = false, with allow_unused");
}

}  // namespace lockstep::parallel
