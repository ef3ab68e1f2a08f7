#include "lockstep/model/mlp.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/base/error.h"
#include "lockstep/model/limits.h"

namespace lockstep::model {

FullMLPImpl::FullMLPImpl(std::int64_t dim, std::int64_t depth, std::int64_t outputs) {
  check_size("dim", dim);
  check_size("depth", depth);
  check_size("outputs", outputs);
  const double width = static_cast<double>(dim);
  check_fits(fmt::format("an MLP of depth {} and dim {}", depth, dim),
             static_cast<double>(depth) * (width + 1) * width + (width + 1) * static_cast<double>(outputs));
  for (std::int64_t layer = 0; layer < depth; ++layer) {
    push_back(torch::nn::Linear(dim, dim));
    push_back(torch::nn::ReLU());
  }
  push_back(torch::nn::Linear(dim, outputs));
}

}  // namespace lockstep::model
