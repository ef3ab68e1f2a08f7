#include "lockstep/parallel/data/reducer.h"

#include <fmt/format.h>
#include <utility>

#include "lockstep/base/cpu.h"
#include "lockstep/error.h"

namespace lockstep::parallel {

Reducer::Reducer(torch::nn::Module& module, Communicator& comm, DdpOptions options)
    : model_(module, comm, std::move(options)) {
  times_.set_overlaps(model_.overlaps);
  const auto& [trained, frozen, buffers] = model_.tensors;
  if (!model_.options.flat) broadcast_all(trained, model_.comm, 0);
  broadcast_all(frozen, model_.comm, 0);
  broadcast_all(buffers, model_.comm, 0);
  if (model_.options.static_graph) graph_.emplace(model_);
  for (std::size_t i = 0; i < trained.size(); ++i) {
    GradientHooks::Hook before;
    if (model_.options.flat) before = [this, i] { optimizer_side_.before_accumulation(i); };
    hooks_.add(
        trained[i].tensor, [this, i] { after_accumulation(i); }, std::move(before));
  }
}

std::string Reducer::layout() const {
  return model_.gradients.layout().table(items_of(model_.tensors.trained)) +
         fmt::format("overlap: {}, {} rank{} over {}, {} core{}\n", model_.overlaps ? "on" : "off", model_.comm.size(),
                     model_.comm.size() == 1 ? "" : "s", model_.comm.transport(), allowed_cores(),
                     allowed_cores() == 1 ? "" : "s") +
         (!model_.options.fused_update ? ""
          : model_.fuses
              ? "gradients are averaged by the optimizer\n"
              : "gradients are averaged after backward: one rank, not all are float32, or not the algorithm direct\n");
}

// --- forward ---

void Reducer::begin_forward() {
  check_phase();
  if (torch::GradMode::is_enabled()) check_module();
  leave_backward();
  phase_ = Phase::idle;  // it is still `reached` after a backward that threw before its first gradient
  optimizer_side_.begin_forward();
  const bool trains = torch::GradMode::is_enabled() && model_.module.is_training() && no_sync_ == 0;
  if (trains && !joining_.inside()) model_.comm.begin_step(++steps_);
  if (trains && model_.options.broadcast_buffers && !model_.tensors.buffers.empty()) {
    joining_.announce(Joining::Event::buffers);
    share_buffers();
  }
}

void Reducer::check_phase() const {
  if (phase_ == Phase::in_flight)
    throw UsageError("the last backward's buckets are still under way", "finish() after backward, with deferred");
  if (phase_ == Phase::collecting || phase_ == Phase::finishing)
    throw UsageError("the last backward of this model ended by an exception, so its gradients are undefined",
                     "a new DistributedDataParallel on every rank");
}

void Reducer::check_module() {
  checks_.check_registered();
  optimizer_side_.check_places();
  checks_.check_types();
  hooks_.follow();
}

void Reducer::share_buffers() try {
  broadcast_all(model_.tensors.buffers, model_.comm, joining_.inside() ? joining_.active().back() : 0);
} catch (const TimedOut& late) {
  ErrorFacts facts = late.facts();
  facts.context.insert(
      facts.context.begin(),
      fmt::format("rank {}: a forward of {} waits for its buffers (such as BatchNorm's statistics), which all ranks "
                  "share at every forward in training",
                  model_.comm.world_rank(), model_.name));
  facts.hint =
      "forward on all ranks; or, to look at a sample on one rank, the module itself after eval(). " + facts.hint;
  std::rethrow_exception(late.with_facts(std::move(facts)));
}

void Reducer::watch(const torch::Tensor& output) {
  when_backward_comes_to(output, [self = std::weak_ptr<Reducer*>(self_)] {
    if (const auto reducer = self.lock()) (*reducer)->output_reached();
  });
}

// --- backward: gradients arrive ---

// Runs first in a backward of this model. The callback for the end of backward is queued here, because the first
// gradient may come from a backward inside the backward (reentrant checkpointing), and the end of that one is not the
// end of the whole backward.
void Reducer::output_reached() {
  begin_any_backward();
  if (no_sync_ > 0 || phase_ > Phase::collecting || (phase_ == Phase::collecting && buckets_.has_any())) return;
  // Asks at every output: the phase may also be left from a backward that threw before its first gradient, and whose
  // callbacks are dropped.
  ask_for_end();
  if (phase_ == Phase::collecting) return;
  phase_ = Phase::reached;
  if (!model_.options.allow_unused) return;
  begin_backward();
}

// Whether it reduces gradients or not. A backward that throws drops its callbacks, and with them what they hold.
void Reducer::begin_any_backward() {
  if (backward_.expired()) leave_backward();
  if (!model_.gradients.begin_backward()) return;
  const auto backward = std::make_shared<int>();
  backward_ = backward;
  at_end_of_backward([this, backward] { model_.gradients.end_backward(); });
  optimizer_side_.begin_accumulation();
}

void Reducer::leave_backward() {
  model_.gradients.end_backward();
  optimizer_side_.leave_backward();
}

// region hook
void Reducer::after_accumulation(std::size_t parameter) {
  const torch::NoGradGuard no_grad;
  if (!model_.tensors.trained[parameter].tensor.grad().defined()) return;  // the hook ran without a gradient
  model_.gradients.came(parameter);
  if (phase_ == Phase::in_flight)
    model_.fail("a backward while the last one's buckets are under way", "finish() before it, with deferred");
  if (no_sync_ > 0) {
    if (graph_) graph_->check_inside_no_sync(parameter);
    unused_.mark_used(parameter);  // a later backward will reduce its gradient
    if (model_.options.flat) model_.gradients.bring_in(parameter);
    return;
  }
  if (phase_ < Phase::collecting) begin_backward();
  unused_.mark_used(parameter);
  if (graph_ && !graph_->count(parameter)) return;  // another part of its gradient may come
  buckets_.add(parameter);
}
// endregion

void Reducer::begin_backward() {
  optimizer_side_.begin_reduction();
  if (std::exchange(phase_, Phase::collecting) == Phase::idle) ask_for_end();
  joining_.announce(Joining::Event::backward);
  begin_buckets();
}

void Reducer::ask_for_end() {
  at_end_of_backward([this] {
    if (phase_ == Phase::reached) phase_ = Phase::idle;
    if (phase_ == Phase::collecting) end_of_backward();
  });
}

// --- backward: its end ---

// region end
void Reducer::end_of_backward() {
  const torch::NoGradGuard no_grad;
  const auto end = times_.end_backward();
  buckets_.add_late();
  if (graph_) graph_->end_backward(buckets_);
  unused_.find_missing(buckets_);
  buckets_.reduce_rest();
  times_.set_gradients(model_.gradients.copied_bytes(), model_.gradients.kept());
  phase_ = Phase::in_flight;
  if (!model_.options.deferred) finish_since(end);
}

void Reducer::finish() {
  if (phase_ == Phase::in_flight) finish_since(Clock::now());
}

void Reducer::finish_since(Clock::time_point end) {
  const torch::NoGradGuard no_grad;
  phase_ = Phase::finishing;
  end_buckets();
  phase_ = Phase::idle;
  times_.end_wait(end);
}

void Reducer::end_buckets() {
  if (model_.fuses && !optimizer_side_.leave_to_optimizer()) buckets_.reduce_all();
  buckets_.wait();
  unused_.settle();
  buckets_.rebuild(joining_.active().front());
  optimizer_side_.end_reduction();
}
// endregion

void Reducer::begin_buckets() {
  buckets_.begin();
  unused_.begin_backward();
  if (graph_) graph_->begin_backward();
}

// --- ranks with different numbers of batches ---

void Reducer::join(const std::function<void()>& body, const JoinOptions& options) {
  if (model_.options.sharded)
    throw UsageError("join with sharded: a rank that has no more batches would not update its share",
                     "ddp or flat, or the same number of batches on all ranks");
  model_.comm.begin_step(steps_ = 0);  // inside join, steps are not counted: ranks may make different numbers of them
  joining_.run(body, options, [this] { stand_in(); });
}

// Takes part, on a rank that has joined, in a backward of the active ranks.
void Reducer::stand_in() {
  begin_buckets();
  buckets_.reduce_zeros();
  end_buckets();
}

}  // namespace lockstep::parallel
