#include "lockstep/parallel/data/bucket_reductions.h"

#include <fmt/format.h>

#include "lockstep/tensor.h"

namespace lockstep::parallel {

BucketReductions::BucketReductions(DistributedModel& model, const Joining& joining, StepTimes& times)
    : model_(model), joining_(joining), times_(times), ready_(model.tensors.trained.size(), false) {
  if (!model.options.flat && !ready_.empty()) order_.emplace();
}

void BucketReductions::begin() {
  const auto& buckets = model_.gradients.buckets();
  ready_.assign(ready_.size(), false);
  if (order_) order_->clear();
  next_ = 0;
  pending_.clear();
  for (const GradientBucket& bucket : buckets) pending_.push_back(bucket.parameters().size());
  flights_.assign(buckets.size(), {});
  times_.begin_buckets(buckets);
}

// region ready
void BucketReductions::add(std::size_t parameter) {
  if (ready_[parameter])
    model_.fail(
        fmt::format("the gradient of {} came a second time in one backward", model_.tensors.trained[parameter].name),
        "DdpOptions::static_graph = true if the graph is the same at every step");
  model_.gradients.bring_in(parameter);
  if (!take(parameter)) return;
  times_.bucket_ready(model_.gradients.bucket_of(parameter));
  reduce_full();
}

// Returns true if this was the last gradient of its bucket.
bool BucketReductions::take(std::size_t parameter) {
  ready_[parameter] = true;
  if (order_) order_->push_back(parameter);
  return --pending_[model_.gradients.bucket_of(parameter)] == 0;
}

void BucketReductions::reduce_full() {
  while (next_ + 1 < pending_.size() && pending_[next_] == 0) reduce(next_++, false);
}
// endregion

void BucketReductions::reduce_last() {
  if (!pending_.empty()) reduce(next_, !model_.options.deferred);  // a model may have no parameters to train
}

void BucketReductions::reduce_zeros() {
  for (const GradientBucket& bucket : model_.gradients.buckets()) {
    bucket.flat().zero_();
    reduce(bucket.index(), true);
  }
}

void BucketReductions::reduce(std::size_t index, bool now) {
  const DdpOptions& options = model_.options;
  Communicator& comm = model_.comm;
  GradientBucket& bucket = model_.gradients.buckets()[index];
  InFlight& flight = flights_[index];
  if (options.hook) {
    try {
      flight.work = options.hook(comm, bucket);
    } catch (const std::exception& error) {
      comm.abort(fmt::format("rank {}: the communication hook failed: {}", comm.world_rank(), error.what()));
      throw;
    }
    return;
  }
  if (comm.size() == 1) return;
  const Buffer whole = as_buffer(bucket.flat());
  const ReduceOp op = joining_.divides_by_active() ? ReduceOp::sum : ReduceOp::mean;
  const std::size_t chunk = whole.count / static_cast<std::size_t>(comm.size());
  const auto mine = [&] {  // this rank's chunk of a sharded bucket
    return as_buffer(
        bucket.flat().narrow(0, static_cast<std::int64_t>(chunk) * comm.rank(), static_cast<std::int64_t>(chunk)));
  };
  if (now) {
    flight.times.began = Clock::now();
    options.sharded ? comm.reduce_scatter(whole, mine(), op) : comm.all_reduce(whole, op);
    flight.times.ended = Clock::now();
  } else {
    flight.work = options.sharded ? comm.reduce_scatter_async(whole, mine(), op) : comm.all_reduce_async(whole, op);
  }
}

void BucketReductions::wait() {
  times_.begin_wait();
  for (std::size_t i = 0; i < flights_.size(); ++i) {
    flights_[i].work.wait();
    const Work::Times none{};
    Work::Times times = flights_[i].work.times();
    if (times.began == none.began) times = flights_[i].times;
    flights_[i] = {};
    if (joining_.divides_by_active()) {
      const auto active = static_cast<double>(joining_.active().size());
      const torch::Tensor& flat = model_.gradients.buckets()[i].flat();
      model_.options.hook ? flat.mul_(model_.comm.size() / active) : flat.div_(active);
    }
    if (times.began != none.began) times_.bucket_reduced(i, times);
  }
}

void BucketReductions::rebuild(Rank root) {
  if (!order_) return;
  const std::vector<Named>& trained = model_.tensors.trained;
  std::vector<std::int64_t> sent(order_->begin(), order_->end());
  sent.resize(trained.size());
  model_.comm.broadcast(Buffer(sent.data(), sent.size(), DType::int64), root);
  const std::vector<std::size_t> order(sent.begin(), sent.end());
  order_.reset();
  if (order == reverse_order(order.size())) return;
  model_.gradients.rearrange(make_layout(items_of(trained), order, model_.layout_options()));
}

}  // namespace lockstep::parallel
