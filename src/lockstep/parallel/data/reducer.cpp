#include "lockstep/parallel/data/reducer.h"

#include <fmt/format.h>
#include <algorithm>
#include <numeric>

#include "lockstep/error.h"
#include "lockstep/tensor.h"

namespace lockstep::parallel {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Backward reaches the last layer first.
std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

DdpOptions checked(DdpOptions options) {
  if (options.bucket_bytes == 0 || options.first_bucket_bytes == 0 || options.block_bytes < 64)
    throw UsageError(fmt::format("buckets of {} and {} bytes, blocks of {}", options.first_bucket_bytes,
                                 options.bucket_bytes, options.block_bytes),
                     "buckets of 1 byte or more, blocks of 64 or more");
  if (options.sharded && options.hook)
    throw UsageError("sharded with a communication hook: gradients are reduce-scattered, and a hook leaves the whole",
                     "one of the two");
  if (options.sharded && options.deferred)
    throw UsageError("sharded and deferred: a sharded backward ends with a barrier", "one of the two");
  options.flat |= options.sharded;
  return options;
}

ModelTensors compared(const torch::nn::Module& module, Communicator& comm) {
  ModelTensors tensors = tensors_of(module);
  compare_models(tensors, comm);
  for (const auto& [name, tensor] : tensors.trained)
    if (!tensor.is_floating_point())
      throw UsageError(fmt::format("{} is {}, and only the gradients of real floating-point numbers are averaged", name,
                                   c10::toString(tensor.scalar_type())),
                       "a parameter of pairs of reals with torch::view_as_complex() in forward");
  return tensors;
}

}  // namespace

Reducer::Reducer(torch::nn::Module& module, Communicator& comm, DdpOptions options)
    : options_(checked(std::move(options))),
      name_(fmt::format("DistributedDataParallel of {}", options_.name.empty() ? module.name() : options_.name)),
      comm_(comm.duplicate(name_)),
      module_(module),
      tensors_(compared(module, comm_)),
      registered_(module),
      gradients_(tensors_.trained,
                 make_layout(items_of(tensors_.trained), reverse_order(tensors_.trained.size()), layout_options()),
                 comm_) {
  const std::size_t count = tensors_.trained.size();
  if (options_.flat)
    flat_.emplace(tensors_.trained, gradients_, options_, comm_);
  else
    broadcast_all(tensors_.trained, comm_, 0);
  broadcast_all(tensors_.frozen, comm_, 0);
  broadcast_all(tensors_.buffers, comm_, 0);

  used_.assign(count, 0);
  ready_.assign(count, false);
  seen_.assign(count, 0);
  fresh_.assign(count, false);
  stale_ = options_.sharded;
  rebuilt_ = options_.flat || count == 0;  // the optimizer holds the flat blocks, so they are never rebuilt
  for (Rank rank = 0; rank < comm_.size(); ++rank) active_.push_back(rank);
  for (std::size_t i = 0; i < count; ++i) {
    GradientHooks::Hook before;
    if (flat_) before = [this, i] { before_accumulation(i); };
    hooks_.add(
        tensors_.trained[i].tensor, [this, i] { after_accumulation(i); }, std::move(before));
  }
}

LayoutOptions Reducer::layout_options() const {
  return {options_.first_bucket_bytes, options_.bucket_bytes, options_.sharded ? comm_.size() : 1};
}

// --- forward ---

void Reducer::begin_forward() {
  check_usage();
  accumulating_ = end_asked_for_ = false;  // they may still be set after a backward that threw
  sync();
  const bool trains = torch::GradMode::is_enabled() && module_.is_training() && no_sync_ == 0;
  if (trains && !joining_) comm_.begin_step(++steps_);
  if (trains && options_.broadcast_buffers && !tensors_.buffers.empty()) {
    if (joining_) announce(Event::buffers);
    share_buffers();
  }
}

void Reducer::share_buffers() try {
  broadcast_all(tensors_.buffers, comm_, joining_ ? active_.back() : 0);
} catch (const TimedOut& late) {
  ErrorFacts facts = late.facts();
  facts.context.insert(
      facts.context.begin(),
      fmt::format("rank {}: a forward of {} waits for its buffers (such as BatchNorm's statistics), which all ranks "
                  "share at every forward in training",
                  comm_.world_rank(), name_));
  facts.hint =
      "forward on all ranks; or, to look at a sample on one rank, the module itself after eval(). " + facts.hint;
  std::rethrow_exception(late.with_facts(std::move(facts)));
}

void Reducer::end_forward(Clock::time_point began) {
  forward_end_ = Clock::now();
  statistics_.forward = seconds(forward_end_ - began);
}

void Reducer::watch(const torch::Tensor& output) {
  when_backward_comes_to(output, [self = std::weak_ptr<Reducer*>(self_)] {
    if (const auto reducer = self.lock()) (*reducer)->output_reached();
  });
}

// Runs first in a backward of this model. The callback for the end of backward is queued here, because the first
// gradient may come from a backward inside the backward (reentrant checkpointing), and the end of that one is not the
// end of the whole backward.
void Reducer::output_reached() {
  if (no_sync_ > 0 || in_backward_ || unfinished_) return;
  ask_for_end();
  if (!options_.allow_unused) return;
  if (flat_ && !accumulating_) begin_accumulation();
  begin_backward();
}

// Throws if a parameter was registered later, because that has no hook and no place in a bucket, or if one was removed.
void Reducer::check_registered() {
  if (!registered_.changed()) return;
  const auto has = [](const std::vector<Named>& all, const torch::Tensor& one) {
    return std::any_of(all.begin(), all.end(), [&](const Named& named) { return named.tensor.is_same(one); });
  };
  const ModelTensors now = tensors_of(module_);
  const char* const hint = "a new DistributedDataParallel after the last change of the module";
  for (const auto& [name, tensor] : now.trained)
    if (!has(tensors_.trained, tensor) && !has(tensors_.frozen, tensor))
      throw UsageError(fmt::format("rank {}: {} was registered after DistributedDataParallel was made, so nobody would "
                                   "average its gradient",
                                   comm_.world_rank(), name),
                       hint);
  for (const auto& [name, tensor] : tensors_.trained)
    if (!has(now.trained, tensor) && !has(now.frozen, tensor))
      throw UsageError(fmt::format("rank {}: {} was taken out of the module, or replaced, after "
                                   "DistributedDataParallel was made",
                                   comm_.world_rank(), name),
                       hint);
  registered_ = Registered(module_);
}

void Reducer::check_usage() {
  if (unfinished_)
    throw UsageError("the last backward's buckets are still under way", "finish() after backward, with deferred");
  if (in_backward_)
    throw UsageError("the last backward of this model ended by an exception, so its gradients are undefined",
                     "a new DistributedDataParallel on every rank");
  if (!torch::GradMode::is_enabled()) return;
  check_registered();
  if (flat_) flat_->check_places();
  for (std::size_t i = 0; i < tensors_.trained.size(); ++i)
    if (tensors_.trained[i].tensor.scalar_type() != gradients_.place(i).scalar_type())
      throw UsageError(fmt::format("{} was {} when DistributedDataParallel was made and is {} now",
                                   tensors_.trained[i].name, c10::toString(gradients_.place(i).scalar_type()),
                                   c10::toString(tensors_.trained[i].tensor.scalar_type())),
                       "module.to() before DistributedDataParallel is made");
  for (const auto& [name, tensor] : tensors_.frozen)
    if (tensor.requires_grad())
      throw UsageError(fmt::format("{} was frozen when DistributedDataParallel was made and requires a gradient now, "
                                   "which nobody would average",
                                   name),
                       "a new DistributedDataParallel after requires_grad_()");
  hooks_.follow();
}

// --- backward: gradients arrive ---

// region hook
void Reducer::after_accumulation(std::size_t parameter) {
  const torch::NoGradGuard no_grad;
  if (!tensors_.trained[parameter].tensor.grad().defined()) return;  // the hook ran without a gradient
  if (unfinished_) fail("a backward while the last one's buckets are under way", "finish() before it, with deferred");
  if (no_sync_ > 0) {
    if (expected_ && (*expected_)[parameter] == 0)
      fail(fmt::format("the graph is not static: the gradient of {} came inside no_sync, and not in the first backward",
                       tensors_.trained[parameter].name),
           "DdpOptions::static_graph = false, with allow_unused");
    used_[parameter] = 1;  // a later backward will reduce its gradient
    if (flat_) gradients_.bring_in(parameter);
    return;
  }
  if (!in_backward_) begin_backward();
  used_[parameter] = 1;
  ++seen_[parameter];
  if (options_.static_graph) {
    if (!expected_) return;                                  // first backward: all is reduced at its end
    if (seen_[parameter] < (*expected_)[parameter]) return;  // another part of its gradient will come
  }
  mark_ready(parameter);
}

void Reducer::mark_ready(std::size_t parameter) {
  if (ready_[parameter])
    fail(fmt::format("the gradient of {} came a second time in one backward", tensors_.trained[parameter].name),
         "DdpOptions::static_graph = true if the graph is the same at every step");
  ready_[parameter] = true;
  gradients_.bring_in(parameter);
  if (!rebuilt_) order_.push_back(parameter);
  const std::size_t bucket = gradients_.bucket_of(parameter);
  if (--pending_[bucket] > 0) return;
  statistics_.buckets[bucket].ready = seconds(Clock::now() - forward_end_);
  reduce_full_buckets();
}

void Reducer::reduce_full_buckets() {
  while (next_ + 1 < pending_.size() && pending_[next_] == 0) reduce(next_++, false);
}
// endregion

void Reducer::begin_backward() {
  if (std::exchange(reduced_and_kept_, false))
    fail(
        "a second backward before the optimizer's step: nobody has used the first one's gradients, of which a rank has "
        "kept only its share",
        "an optimizer of ddp.parameters(): not of the module's own, as in net->parameters() or ddp->parameters(); its "
        "step() and zero_grad() in every step; no_sync() around all backward passes but the last");
  in_backward_ = true;
  ask_for_end();
  if (joining_) announce(Event::backward);
  begin_buckets();
}

void Reducer::ask_for_end() {
  if (std::exchange(end_asked_for_, true)) return;
  at_end_of_backward([this] {
    end_asked_for_ = false;
    if (in_backward_ && !unfinished_) end_of_backward();
  });
}

void Reducer::begin_buckets() {
  const auto& buckets = gradients_.buckets();
  ready_.assign(ready_.size(), false);
  seen_.assign(seen_.size(), 0);
  order_.clear();
  missing_.clear();
  next_ = 0;
  pending_.clear();
  flights_.assign(buckets.size(), {});
  statistics_.buckets.assign(buckets.size(), {});
  for (const GradientBucket& bucket : buckets) {
    pending_.push_back(bucket.parameters().size());
    statistics_.buckets[bucket.index()].bytes = bucket.bytes();
  }
}

// --- backward: its end ---

// region end
void Reducer::end_of_backward() {
  const torch::NoGradGuard no_grad;
  const auto end = Clock::now();
  statistics_.backward = seconds(end - forward_end_);
  find_missing();
  reduce(next_, !options_.deferred);  // the last bucket
  unfinished_ = true;
  if (!options_.deferred) finish_since(end);
}

void Reducer::finish() {
  if (unfinished_) finish_since(Clock::now());
}

void Reducer::finish_since(Clock::time_point end) {
  const torch::NoGradGuard no_grad;
  unfinished_ = false;
  wait_for_buckets();
  share_used();
  settle_missing();
  if (!rebuilt_) rebuild();
  if (options_.sharded) finish_sharded();
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
  in_backward_ = false;
  statistics_.exposed_communication = seconds(Clock::now() - end);
  forward_end_ = Clock::now();  // the times of a second backward count from here
}
// endregion

void Reducer::reduce(std::size_t index, bool now) {
  if (index >= gradients_.buckets().size()) return;  // a model without parameters to train
  GradientBucket& bucket = gradients_.buckets()[index];
  BucketInFlight& flight = flights_[index];
  if (options_.hook) {
    try {
      flight.work = options_.hook(comm_, bucket);
    } catch (const std::exception& error) {
      comm_.abort(fmt::format("rank {}: the communication hook failed: {}", comm_.world_rank(), error.what()));
      throw;
    }
    return;
  }
  if (comm_.size() == 1) return;
  const Buffer whole = as_buffer(bucket.flat());
  const ReduceOp op = joining_ && joining_->divide_by_active ? ReduceOp::sum : ReduceOp::mean;
  const std::size_t chunk = whole.count / static_cast<std::size_t>(comm_.size());
  const auto mine = [&] {  // this rank's chunk of a sharded bucket
    return as_buffer(
        bucket.flat().narrow(0, static_cast<std::int64_t>(chunk) * comm_.rank(), static_cast<std::int64_t>(chunk)));
  };
  if (now) {
    flight.times.began = Clock::now();
    options_.sharded ? comm_.reduce_scatter(whole, mine(), op) : comm_.all_reduce(whole, op);
    flight.times.ended = Clock::now();
  } else {
    flight.work = options_.sharded ? comm_.reduce_scatter_async(whole, mine(), op) : comm_.all_reduce_async(whole, op);
  }
}

void Reducer::wait_for_buckets() {
  statistics_.communication = 0;
  for (std::size_t i = 0; i < flights_.size(); ++i) {
    flights_[i].work.wait();
    const Work::Times none{};
    Work::Times times = flights_[i].work.times();
    if (times.began == none.began) times = flights_[i].times;
    flights_[i] = {};
    if (joining_ && joining_->divide_by_active) {
      const auto active = static_cast<double>(active_.size());
      const torch::Tensor& flat = gradients_.buckets()[i].flat();
      options_.hook ? flat.mul_(comm_.size() / active) : flat.div_(active);
    }
    if (times.began == none.began) continue;
    statistics_.buckets[i].began = seconds(times.began - forward_end_);
    statistics_.buckets[i].ended = seconds(times.ended - forward_end_);
    statistics_.communication += seconds(times.ended - times.began);
  }
}

// --- rebuilding the buckets once, errors ---

// The order in which the gradients of one rank arrived is the best guess for the next steps.
void Reducer::rebuild() {
  rebuilt_ = true;
  std::vector<std::int64_t> order(order_.begin(), order_.end());
  order.resize(tensors_.trained.size());
  comm_.broadcast(Buffer(order.data(), order.size(), DType::int64), active_.front());
  order_.assign(order.begin(), order.end());
  if (order_ == reverse_order(order_.size())) return;
  gradients_.rearrange(make_layout(items_of(tensors_.trained), order_, layout_options()));
}

void Reducer::fail(const std::string& what, const std::string& hint) {
  const Error error(fmt::format("rank {}: {}", comm_.world_rank(), what), hint);
  comm_.abort(error.what());
  throw error;
}

}  // namespace lockstep::parallel
