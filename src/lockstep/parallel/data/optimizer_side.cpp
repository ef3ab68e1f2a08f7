// What the optimizer sees of a Reducer: parameters or blocks, gradients that are zeroed, replaced or clipped, and with
// sharded the barriers between its updates and everyone's reading.
#include <algorithm>
#include <cmath>

#include "lockstep/parallel/data/reducer.h"

namespace lockstep::parallel {

std::vector<torch::Tensor> Reducer::optimized() const {
  if (flat_) return flat_->blocks();
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, tensor] : tensors_.trained) parameters.push_back(tensor);
  return parameters;
}

// No rank may update parameters that another's backward still reads. The module's own gradients go, so that an
// optimizer which was given the module's parameters by mistake finds nothing to do, and begin_backward() can say so.
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
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : optimized())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  const bool largest = std::isinf(norm_type);
  double norm = 0;
  for (const torch::Tensor& gradient : gradients) {
    const double part = gradient.norm(norm_type).item<double>();
    norm = largest ? std::max(norm, part) : norm + std::pow(part, norm_type);
  }
  if (options_.sharded) comm_.all_reduce(Buffer(&norm, 1, DType::float64), largest ? ReduceOp::max : ReduceOp::sum);
  if (!largest) norm = std::pow(norm, 1 / norm_type);
  const double factor = max_norm / (norm + 1e-6);
  if (factor < 1)
    for (const torch::Tensor& gradient : gradients) gradient.mul_(factor);
  if (options_.sharded) flat_->remember();  // clipped, and not yet used
  return norm;
}

// flat only: the gradient's place may hold what must not be added to.
void Reducer::before_accumulation(std::size_t parameter) {
  if (!accumulating_) begin_accumulation();
  if (!stale_ || fresh_[parameter]) return;
  // With no gradient there, autograd hands over the new one as it is: one copy into the bucket instead of zeros and a
  // sum.
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
    reduced_and_kept_ = reduced_ && !touched && !flat_->values_changed();  // only a step may follow a reduction
    return;
  }
  if (!touched) return;  // more is added to what no_sync has gathered
  if (!flat_->zeroed())
    fail("gradients were changed between backward passes inside no_sync(): a rank sees only its own part of them",
         "zero_grad() to begin anew; clip or scale after the backward that reduces");
  std::fill(fresh_.begin(), fresh_.end(), false);  // the optimizer has zeroed its part: the rest goes, too
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
  reduced_and_kept_ = false;
}

}  // namespace lockstep::parallel
