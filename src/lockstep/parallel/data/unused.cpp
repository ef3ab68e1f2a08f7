// Parameters that a backward does not reach. They are found at its end. Then they are either allowed or an error that
// names them. A parameter that no rank has used is left as it was.
#include "lockstep/error.h"

#include <fmt/format.h>
#include "lockstep/parallel/data/reducer.h"

namespace lockstep::parallel {

// Finds the parameters that this backward has not reached.
void Reducer::find_missing() {
  if (options_.static_graph) learn_graph();
  std::string names;
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    if (ready_[i]) continue;
    if (used_[i] != 0) {  // its gradient came inside no_sync()
      mark_ready(i);
      continue;
    }
    if (!options_.allow_unused && !options_.static_graph) {
      names += (names.empty() ? "" : ", ") + tensors_.trained[i].name;
      continue;
    }
    Missing one{i, tensors_.trained[i].tensor.grad(), gradients_.is_in_place(i)};
    if (one.old.defined() && one.in_place && !stale_) one.old = one.old.clone();
    if (one.old.defined() && !stale_)
      gradients_.place(i).copy_(one.old);
    else
      gradients_.place(i).zero_();
    missing_.push_back(std::move(one));
    ready_[i] = true;
    if (!rebuilt_) order_.push_back(i);
    --pending_[gradients_.bucket_of(i)];
  }
  if (!names.empty())
    fail(fmt::format("no gradient in this backward for {}: the other ranks would wait for it", names),
         "DdpOptions::allow_unused, or requires_grad_(false) before DistributedDataParallel is made");
  reduce_full_buckets();
}

// Static graph: the first backward shows how often each hook runs, and in every later one it must run as often.
void Reducer::learn_graph() {
  if (!expected_) {
    expected_ = seen_;
    for (std::size_t i = 0; i < seen_.size(); ++i)
      if (seen_[seen_.size() - 1 - i] > 0) mark_ready(seen_.size() - 1 - i);
    return;
  }
  for (std::size_t i = 0; i < seen_.size(); ++i)
    if (seen_[i] != (*expected_)[i])
      fail(fmt::format("the graph is not static: the gradient of {} came {} times, and {} times in the first backward",
                       tensors_.trained[i].name, seen_[i], (*expected_)[i]),
           "DdpOptions::static_graph = false, with allow_unused");
}

// After this, used_ says which parameters any rank has used. With a static graph this never changes, so it is exchanged
// once.
void Reducer::share_used() {
  if (!options_.allow_unused && !options_.static_graph) return;
  if (options_.static_graph && !graph_used_.empty()) {
    for (std::size_t i = 0; i < used_.size(); ++i) used_[i] |= graph_used_[i];
    return;
  }
  comm_.all_reduce(Buffer(used_.data(), used_.size(), DType::uint8), ReduceOp::max);
  if (options_.static_graph) graph_used_ = used_;
}

// A missing parameter that another rank has used gets its gradient on this rank, too. A parameter that no rank has used
// gets back what it had before.
void Reducer::settle_missing() {
  for (const auto& [parameter, old, in_place] : missing_) {
    if (used_[parameter] != 0)
      gradients_.point(parameter);
    else if (old.defined() && in_place && !options_.sharded)
      gradients_.place(parameter).copy_(old);
  }
  missing_.clear();
}

}  // namespace lockstep::parallel
