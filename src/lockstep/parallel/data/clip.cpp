#include "lockstep/parallel/data/clip.h"

#include <algorithm>
#include <cmath>

namespace lockstep::parallel {

double clip_gradients(const std::vector<torch::Tensor>& parameters, double max_norm, double norm_type,
                      Communicator* ranks) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  const bool largest = std::isinf(norm_type);
  double norm = 0;
  for (const torch::Tensor& gradient : gradients) {
    const double part = gradient.norm(norm_type).item<double>();
    norm = largest ? std::max(norm, part) : norm + std::pow(part, norm_type);
  }
  if (ranks != nullptr) ranks->all_reduce(Buffer(&norm, 1, DType::float64), largest ? ReduceOp::max : ReduceOp::sum);
  if (!largest) norm = std::pow(norm, 1 / norm_type);
  const double factor = max_norm / (norm + 1e-6);
  if (factor < 1)
    for (const torch::Tensor& gradient : gradients) gradient.mul_(factor);
  return norm;
}

}  // namespace lockstep::parallel
