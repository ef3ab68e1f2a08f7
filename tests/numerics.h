// How close two computations of the same numbers must come. Every test that compares computed floating-point values
// does it with close() from here; tests/processes/numerics.py is the same for tests in Python. What must be the same to
// the bit is compared with torch::equal.
//
// Where the bound comes from. A float32 operation rounds by at most 2^-24 = 6e-8 of its result. A sum of n terms in
// another order (other matrix kernels, a batch in parts, a mean over ranks) differs by about sqrt(n) * 6e-8 of the
// largest partial sum. Sums of 10 to some thousand terms give 2e-7 to 4e-6, a few layers in a row not much more,
// because their errors have random signs. Training adds errors up, but with a learning rate at which it converges it
// does not blow them up within the 20 steps that tests make. So the bound is 1e-5. The largest difference that was seen
// is 6e-7, with OpenBLAS's kernels for Nehalem, Haswell, SkylakeX and Zen, and 1.3e-6 in a bias of a transformer, which
// began at zero. A mistake is far larger: a gradient that is 1.001 times what it should be is off by 1e-3.
//
// What the bound is relative to. Rounding is relative to the numbers that went into a sum, and single elements may be
// nearly zero because those cancelled. So a difference is measured against the largest element of its tensor, or of all
// tensors that come from the same backward pass.
//
// Adam, RMSprop and Adagrad divide each gradient by its own size. That turns a rounding error d of a gradient that is
// nearly zero into a step of lr * d / (|gradient| + eps), which may be as large as lr. Tests that compare weights give
// these optimizers kAdaptiveEps: with gradients of about 1 and d = 1e-7, a step is then off by at most 1e-4 * lr.
// Losses need no such care: a weight whose gradient is nearly zero hardly changes the loss.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::test {

inline constexpr double kClose = 1e-5;
inline constexpr double kAdaptiveEps = 1e-3;
// A loss is made of outputs of about 1. Their rounding stays in it, however small it gets.
inline constexpr double kLossFloor = 0.1;
// After some steps with gradients that travelled as these types: four times the rounding of one (2^-9 and 2^-12).
inline constexpr double kBfloat16 = 1.0 / 128;
inline constexpr double kFloat16 = 1.0 / 1024;

namespace numerics {

inline double largest(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.detach().abs().max().item<double>();
}

inline ::testing::AssertionResult judge(double difference, double scale, double bound) {
  if (difference <= bound * scale) return ::testing::AssertionSuccess();  // not so for NaN
  return ::testing::AssertionFailure() << "off by " << difference << ", which is " << difference / scale << " of "
                                       << scale << "; at most " << bound << " is allowed";
}

}  // namespace numerics

// Tensors that belong together, as all gradients of a model: relative to the largest element of all of them.
inline ::testing::AssertionResult close(const std::vector<torch::Tensor>& got, const std::vector<torch::Tensor>& want,
                                        double bound = kClose) {
  if (got.size() != want.size())
    return ::testing::AssertionFailure() << got.size() << " tensors instead of " << want.size();
  double difference = 0;
  double scale = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i].sizes() != want[i].sizes())
      return ::testing::AssertionFailure()
             << "tensor " << i << ": " << got[i].sizes() << " instead of " << want[i].sizes();
    const double here = numerics::largest(got[i] - want[i]);
    if (std::isnan(here)) return ::testing::AssertionFailure() << "tensor " << i << ": a difference is not a number";
    difference = std::max(difference, here);
    scale = std::max(scale, numerics::largest(want[i]));
  }
  return numerics::judge(difference, scale, bound);
}

// One tensor: relative to its largest element.
inline ::testing::AssertionResult close(const torch::Tensor& got, const torch::Tensor& want, double bound = kClose) {
  return close(std::vector{got}, std::vector{want}, bound);
}

// A loss or a norm: relative to itself, or to kLossFloor if it is smaller.
inline ::testing::AssertionResult close(double got, double want, double bound = kClose) {
  return numerics::judge(std::abs(got - want), std::max(std::abs(want), kLossFloor), bound);
}

}  // namespace lockstep::test
