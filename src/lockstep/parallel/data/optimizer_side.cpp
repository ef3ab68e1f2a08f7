#include "lockstep/parallel/data/optimizer_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/error.h"
#include "lockstep/parallel/data/autograd.h"
#include "lockstep/parallel/data/clip.h"

namespace lockstep::parallel {

OptimizerSide::OptimizerSide(DistributedModel& model, UnusedParameters& unused)
    : model_(model), unused_(unused), fresh_(model.tensors.trained.size(), false) {
  if (model.options.flat) flat_.emplace(model.tensors.trained, model.gradients, model.options, model.comm, model.fuses);
}

std::vector<torch::Tensor> OptimizerSide::tensors() const {
  if (flat_) return flat_->blocks();
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, tensor] : model_.tensors.trained) parameters.push_back(tensor);
  return parameters;
}

double OptimizerSide::clip_grad_norm(double max_norm, double norm_type) {
  const bool sharded = model_.options.sharded;
  average();
  const double norm = clip_gradients(tensors(), max_norm, norm_type, sharded ? &model_.comm : nullptr);
  if (sharded) flat_->remember();  // clipping is not a use of the gradients
  return norm;
}

void OptimizerSide::average() {
  const torch::NoGradGuard no_grad;
  if (model_.fuses) flat_->average();
}

void OptimizerSide::check_places() const {
  if (flat_) flat_->check_places();
}

void OptimizerSide::begin_forward() {
  if (unsynced_) meet(flat_->stepped());
}

// This forward may come between backward and the optimizer's step. Then no rank may make the step while another one
// still reads the parameters.
void OptimizerSide::end_forward() {
  if (unsynced_) model_.comm.barrier();
}

void OptimizerSide::sync() {
  if (unsynced_) meet(true);
}

// All ranks wait for each other. They have met after the optimizer's step if one of them says so.
void OptimizerSide::meet(bool stepped) try {
  auto flag = static_cast<std::uint8_t>(stepped ? 1 : 0);
  model_.comm.all_reduce(Buffer(&flag, 1, DType::uint8), ReduceOp::max);
  unsynced_ = flag == 0;
} catch (const PeerDied&) {
  throw;
} catch (const Error& error) {
  ErrorFacts facts = error.facts();
  facts.context.insert(
      facts.context.begin(),
      fmt::format("rank {}: with sharded, a forward or sync() of {} waits for the other ranks' optimizers",
                  model_.comm.world_rank(), model_.name));
  facts.hint = "sync() on all ranks after the step, before a forward on one rank alone. " + facts.hint;
  std::rethrow_exception(error.with_facts(std::move(facts)));
}

// The gradient's place may hold values to which the new gradient must not be added.
void OptimizerSide::before_accumulation(std::size_t parameter) {
  if (!accumulating_) begin_accumulation();
  if (!model_.options.sharded || fresh_[parameter]) return;
  // If there is no gradient, the new one need not be added to zeros (gradients.h).
  fresh_[parameter] = true;
  torch::Tensor tensor = model_.tensors.trained[parameter].tensor;
  tensor.mutable_grad().reset();
}

void OptimizerSide::begin_accumulation() {
  if (!flat_ || accumulating_) return;
  const torch::NoGradGuard no_grad;
  accumulating_ = true;
  reducing_ = false;
  if (unsynced_) meet(flat_->stepped());  // there was no forward since the step
  at_end_of_backward([this] { end_accumulation(); });
  if (!model_.options.sharded) {
    // If the optimizer has dropped all gradients, new ones need not be added to zeros.
    const bool dropped = flat_->dropped();
    flat_->restore_gradients(!dropped);
    if (dropped)
      for (const auto& named : model_.tensors.trained) torch::Tensor(named.tensor).mutable_grad().reset();
    return;
  }
  const bool touched = flat_->touched();
  const bool replaces = std::find(fresh_.begin(), fresh_.end(), true) == fresh_.end();
  flat_->restore_gradients(!replaces);
  if (replaces) {
    // After a reduction, the optimizer's step must come before the next backward.
    reduced_and_kept_ = flat_->is_left() || (!touched && flat_->kept_values());
    return;
  }
  if (!touched) return;  // adds to the gradients that were accumulated inside no_sync()
  if (!flat_->zeroed())
    model_.fail(
        "gradients were changed between backward passes inside no_sync(): a rank sees only its own part of them",
        "zero_grad() to begin anew; clip or scale after the backward that reduces");
  // The optimizer has zeroed this rank's part of the gradients, so the rest is dropped, too.
  std::fill(fresh_.begin(), fresh_.end(), false);
  unused_.forget();
  reduced_and_kept_ = false;
}

void OptimizerSide::end_accumulation() {
  accumulating_ = false;
  if (model_.options.sharded) return flat_->remember();
  if (reducing_) return;  // UnusedParameters does it
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < model_.tensors.trained.size(); ++i) {
    if (model_.tensors.trained[i].tensor.grad().defined()) continue;
    model_.gradients.place_for_writing(i).zero_();
    model_.gradients.point(i);
  }
}

void OptimizerSide::begin_reduction() {
  reducing_ = true;
  const bool kept = std::exchange(reduced_and_kept_, false);
  if (kept && model_.fuses)
    model_.fail(
        "a second backward before the optimizer's step: with fused_update, nobody has used the first one's gradients",
        "lockstep::Adam, AdamW or SGD of all of ddp.parameters(), and its step() in every step; no_sync() around all "
        "backward passes but the last; average_gradients() and zero_grad() to leave a step out");
  if (kept)
    model_.fail(
        "a second backward before the optimizer's step: nobody has used the first one's gradients, of which a rank has "
        "kept only its share",
        "an optimizer of ddp.parameters(): not of the module's own, as in net->parameters() or ddp->parameters(); its "
        "step() and zero_grad() in every step; no_sync() around all backward passes but the last");
}

bool OptimizerSide::leave_to_optimizer() {
  auto moved = static_cast<std::uint8_t>(model_.gradients.has_moved() ? 1 : 0);
  model_.comm.all_reduce(Buffer(&moved, 1, DType::uint8), ReduceOp::max);
  flat_->leave_to_optimizer(moved == 0);
  return moved == 0;
}

// No rank may update parameters that another rank's backward still reads: leave_to_optimizer() has waited for all
// ranks, and otherwise the barrier does. The module's own gradients are removed, so that an optimizer which was given
// the module's parameters by mistake finds nothing to do, and begin_reduction() can report it.
void OptimizerSide::end_reduction() {
  if (!model_.options.sharded) return;
  const bool left = flat_->leaves();
  if (!left) model_.comm.barrier();
  for (const auto& named : model_.tensors.trained) torch::Tensor(named.tensor).mutable_grad().reset();
  unsynced_ = true;
  std::fill(fresh_.begin(), fresh_.end(), false);
  flat_->remember();
  if (!left) flat_->remember_values();
}

}  // namespace lockstep::parallel
