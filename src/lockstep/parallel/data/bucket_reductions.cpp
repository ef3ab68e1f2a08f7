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
  late_.clear();
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
  ready_[parameter] = true;
  if (model_.gradients.try_to_bring_in(parameter))
    arrive(parameter);
  else
    late_.push_back(parameter);  // another tensor lies in its place; add_late() tries again after backward
}

void BucketReductions::arrive(std::size_t parameter) {
  count(parameter);
  const std::size_t bucket = model_.gradients.bucket_of(parameter);
  if (pending_[bucket] > 0) return;
  times_.bucket_ready(bucket);
  reduce_full();
}

void BucketReductions::reduce_full() {
  if (!model_.overlaps) return;  // all are reduced after backward
  while (next_ + 1 < pending_.size() && pending_[next_] == 0) reduce(next_++, false);
}
// endregion

void BucketReductions::count(std::size_t parameter) {
  if (order_) order_->push_back(parameter);
  --pending_[model_.gradients.bucket_of(parameter)];
}

void BucketReductions::add_in_place(std::size_t parameter) {
  ready_[parameter] = true;
  count(parameter);
}

void BucketReductions::add_late() {
  for (const std::size_t parameter : late_) {
    model_.gradients.bring_in(parameter);
    arrive(parameter);
  }
  late_.clear();
}

void BucketReductions::reduce_rest() {
  for (; next_ < pending_.size(); ++next_) reduce(next_, !model_.options.deferred);
}

void BucketReductions::reduce_zeros() {
  Gradients& gradients = model_.gradients;
  for (std::size_t i = 0; i < ready_.size(); ++i) gradients.place_for_writing(i);
  for (std::size_t bucket = 0; bucket < gradients.buckets().size(); ++bucket) {
    gradients.buckets()[bucket].flat().zero_();
    reduce(bucket, true);
  }
}

void BucketReductions::reduce_all() {
  for (std::size_t bucket = 0; bucket < flights_.size(); ++bucket) begin_reduction(bucket, true);
}

void BucketReductions::reduce(std::size_t index, bool now) {
  if (!model_.fuses) begin_reduction(index, now);
}

void BucketReductions::begin_reduction(std::size_t index, bool now) {
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
