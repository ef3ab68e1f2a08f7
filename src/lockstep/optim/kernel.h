// The arithmetic of one step on elements [begin, end) of a parameter. kernel_baseline.cpp and kernel_avx2.cpp compile
// it with different flags, and one_pass.h chooses one of them at run time.
//
// Coefficients are rounded from double where libtorch rounds them.
#pragma once

#include <cstddef>

namespace lockstep::optim {

// Adam and AdamW. They differ in the weight decay: Adam adds it to the gradient, and AdamW shrinks the parameter.
struct AdamUpdate {
  float* parameter;
  const float* gradient;
  float* average;      // running average of the gradients
  float* square;       // running average of their squares
  float beta1, rest1;  // rest = 1 - beta
  float beta2, rest2;
  float root;  // square root of the second bias correction
  float epsilon;
  float minus_rate;
  float decay;  // Adam's; 0 for AdamW
  float keep;   // 1 - rate * decay for AdamW; 1 for Adam
};

struct SgdUpdate {
  float* parameter;
  const float* gradient;
  float* buffer;  // momentum; null without it
  float momentum;
  float rest;  // 1 - dampening
  float minus_rate;
  float decay;
  bool nesterov;
};

namespace baseline {
void apply(const AdamUpdate& update, std::size_t begin, std::size_t end);
void apply(const SgdUpdate& update, std::size_t begin, std::size_t end);
}  // namespace baseline
namespace avx2 {
void apply(const AdamUpdate& update, std::size_t begin, std::size_t end);
void apply(const SgdUpdate& update, std::size_t begin, std::size_t end);
}  // namespace avx2

}  // namespace lockstep::optim

#ifdef LOCKSTEP_KERNEL
namespace lockstep::optim::LOCKSTEP_KERNEL {

// Rounds where libtorch's add_(x, alpha) and addcmul_ round. They use one instruction for product and sum if the
// machine has one.
inline float multiply_add(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

void apply(const AdamUpdate& update, std::size_t begin, std::size_t end) {
  const AdamUpdate s = update;
  float* __restrict p = s.parameter;
  float* __restrict m = s.average;
  float* __restrict v = s.square;
  const float* __restrict grad = s.gradient;
  const bool decays = s.decay != 0;
  for (std::size_t i = begin; i < end; ++i) {
    const float g = decays ? multiply_add(p[i], s.decay, grad[i]) : grad[i];
    const float average = multiply_add(g, s.rest1, m[i] * s.beta1);
    const float square = multiply_add(s.rest2 * g, g, v[i] * s.beta2);
    m[i] = average;
    v[i] = square;
    p[i] = p[i] * s.keep + s.minus_rate * average / (__builtin_sqrtf(square) / s.root + s.epsilon);
  }
}

void apply(const SgdUpdate& update, std::size_t begin, std::size_t end) {
  const SgdUpdate s = update;
  float* __restrict p = s.parameter;
  float* __restrict buffer = s.buffer;
  const float* __restrict grad = s.gradient;
  const bool decays = s.decay != 0;
  if (buffer == nullptr) {
    for (std::size_t i = begin; i < end; ++i) {
      const float g = decays ? multiply_add(p[i], s.decay, grad[i]) : grad[i];
      p[i] = multiply_add(g, s.minus_rate, p[i]);
    }
    return;
  }
  for (std::size_t i = begin; i < end; ++i) {
    const float g = decays ? multiply_add(p[i], s.decay, grad[i]) : grad[i];
    const float speed = multiply_add(g, s.rest, buffer[i] * s.momentum);
    buffer[i] = speed;
    p[i] = multiply_add(s.nesterov ? multiply_add(speed, s.momentum, g) : speed, s.minus_rate, p[i]);
  }
}

}  // namespace lockstep::optim::LOCKSTEP_KERNEL
#endif
