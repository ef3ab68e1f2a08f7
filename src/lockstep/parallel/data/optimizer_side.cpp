// The optimizer's side of a Reducer: the parameters or blocks that it updates, the gradients that it zeroes, replaces
// or clips, and with sharded the barriers between its updates and the ranks that read the parameters.
#include <algorithm>

#include "lockstep/parallel/data/clip.h"
#include "lockstep/parallel/data/reducer.h"

namespace lockstep::parallel {

std::vector<torch::Tensor> Reducer::optimized() const {
  if (flat_) return flat_->blocks();
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, tensor] : tensors_.trained) parameters.push_back(tensor);
  return parameters;
}

// The barrier is needed because no rank may update parameters that another rank's backward still reads. The module's
// own gradients are removed, so that an optimizer which was given the module's parameters by mistake finds nothing to
// do, and begin_backward() can report it.
void Reducer::finish_sharded() {
  comm_.barrier();
  for (const auto& named : tensors_.trained) torch::Tensor(named.tensor).mutable_grad().reset();
  reduced_ = true;
  unsynced_ = true;
  std::fill(fresh_.begin(), fresh_.end(), false);
  flat_->remember();
  flat_->remember_values();
}

void Reducer::sync() {
  if (!std::exchange(unsynced_, false)) return;
  comm_.barrier();
}

double Reducer::clip_grad_norm(double max_norm, double norm_type) {
  const double norm = clip_gradients(optimized(), max_norm, norm_type, options_.sharded ? &comm_ : nullptr);
  if (options_.sharded) flat_->remember();  // clipping is not a use of the gradients
  return norm;
}

// flat only: the gradient's place may hold values to which the new gradient must not be added.
void Reducer::before_accumulation(std::size_t parameter) {
  if (!accumulating_) begin_accumulation();
  if (!stale_ || fresh_[parameter]) return;
  // If there is no gradient, autograd hands over the new one as it is. That costs one copy into the bucket, instead of
  // zeroing the place and adding to it.
  fresh_[parameter] = true;
  torch::Tensor tensor = tensors_.trained[parameter].tensor;
  tensor.mutable_grad().reset();
}

void Reducer::begin_accumulation() {
  const torch::NoGradGuard no_grad;
  accumulating_ = true;
  at_end_of_backward([this] {
    accumulating_ = false;
    if (options_.sharded) flat_->remember();
  });
  const bool touched = options_.sharded && flat_->touched();
  flat_->restore_gradients();
  if (!options_.sharded || !stale_) return;
  if (std::find(fresh_.begin(), fresh_.end(), true) == fresh_.end()) {
    // After a reduction, the optimizer's step must come before the next backward.
    reduced_and_kept_ = reduced_ && !touched && !flat_->values_changed();
    return;
  }
  if (!touched) return;  // adds to the gradients that were accumulated inside no_sync()
  if (!flat_->zeroed())
    fail("gradients were changed between backward passes inside no_sync(): a rank sees only its own part of them",
         "zero_grad() to begin anew; clip or scale after the backward that reduces");
  // The optimizer has zeroed this rank's part of the gradients, so the rest is dropped, too.
  std::fill(fresh_.begin(), fresh_.end(), false);
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
  reduced_and_kept_ = false;
}

}  // namespace lockstep::parallel
