#include "lockstep/parallel/data/unused_parameters.h"

#include <fmt/format.h>
#include <algorithm>

namespace lockstep::parallel {

void UnusedParameters::forget() { std::fill(used_.begin(), used_.end(), std::uint8_t{0}); }

void UnusedParameters::find_missing(BucketReductions& buckets) {
  const std::vector<Named>& trained = model_.tensors.trained;
  Gradients& gradients = model_.gradients;
  // With sharded, the memory of the gradients holds what the last reduction left there, which is not to be kept.
  const bool keeps = !model_.options.sharded;
  std::string names;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    if (buckets.has(i)) continue;
    if (used_[i] != 0) {  // its gradient came inside no_sync()
      buckets.add(i);
      continue;
    }
    if (!allowed()) {
      names += (names.empty() ? "" : ", ") + trained[i].name;
      continue;
    }
    Missing one{i, trained[i].tensor.grad(), gradients.is_in_place(i)};
    if (one.old.defined() && one.in_place && keeps) one.old = one.old.clone();
    if (one.old.defined() && keeps)
      gradients.place_for_writing(i).copy_(one.old);
    else
      gradients.place_for_writing(i).zero_();
    missing_.push_back(std::move(one));
    buckets.add_in_place(i);
  }
  if (!names.empty())
    model_.fail(fmt::format("no gradient in this backward for {}: the other ranks would wait for it", names),
                "DdpOptions::allow_unused, or requires_grad_(false) before DistributedDataParallel is made");
  buckets.reduce_full();
}

void UnusedParameters::settle() {
  if (allowed()) share_used();
  for (const auto& [parameter, old, in_place] : missing_) {
    if (used_[parameter] != 0 || model_.options.flat)
      model_.gradients.point(parameter);
    else if (old.defined() && in_place && !model_.options.sharded)
      model_.gradients.place(parameter).copy_(old);
  }
  missing_.clear();
  forget();
}

// After this, used_ says which parameters any rank has used. With a static graph this never changes, so it is exchanged
// once.
void UnusedParameters::share_used() {
  if (model_.options.static_graph && !graph_used_.empty()) {
    for (std::size_t i = 0; i < used_.size(); ++i) used_[i] |= graph_used_[i];
    return;
  }
  model_.comm.all_reduce(Buffer(used_.data(), used_.size(), DType::uint8), ReduceOp::max);
  if (model_.options.static_graph) graph_used_ = used_;
}

}  // namespace lockstep::parallel
