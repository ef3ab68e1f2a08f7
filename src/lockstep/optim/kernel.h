// The arithmetic of one step on elements [begin, end) of a parameter. kernel_baseline.cpp and kernel_avx2.cpp compile
// it with different flags, and one_pass.h chooses one of them at run time.
//
// Coefficients are rounded from double where libtorch rounds them.
//
// If there is a second gradient, the step is made with the mean of the two: those of two ranks (unaveraged.h). For more
// than two, a tile of the mean is computed first.
#pragma once

#include <cstddef>

namespace lockstep::optim {

// Adam and AdamW. They differ in the weight decay: Adam adds it to the gradient, and AdamW shrinks the parameter.
struct AdamUpdate {
  float* parameter;
  const float* gradient;
  const float* second = nullptr;
  float* average;      // running average of the gradients
  float* square;       // running average of their squares
  float beta1, rest1;  // rest = 1 - beta
  float beta2, rest2;
  float root;  // square root of the second bias correction
  float epsilon;
  float minus_rate;
  float decay;  // Adam's; 0 for AdamW
  float keep;   // 1 - rate * decay for AdamW; 1 for Adam

  // The same step on what begins at the element `begin`, with the gradient that lies at `other`.
  AdamUpdate with_gradient(const float* other, std::size_t begin) const {
    AdamUpdate moved = *this;
    moved.parameter += begin;
    moved.average += begin;
    moved.square += begin;
    moved.gradient = other;
    return moved;
  }
};

struct SgdUpdate {
  float* parameter;
  const float* gradient;
  const float* second = nullptr;
  float* buffer;  // momentum; null without it
  float momentum;
  float rest;  // 1 - dampening
  float minus_rate;
  float decay;
  bool nesterov;

  SgdUpdate with_gradient(const float* other, std::size_t begin) const {
    SgdUpdate moved = *this;
    moved.parameter += begin;
    if (buffer != nullptr) moved.buffer += begin;
    moved.gradient = other;
    return moved;
  }
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

// The gradient of element i. It is averaged as in collectives/reduce.h.
template <bool kTwo>
float gradient_of(const float* __restrict first, const float* __restrict second, std::size_t i) {
  return kTwo ? (first[i] + second[i]) / 2 : first[i];
}

template <bool kTwo>
void run(const AdamUpdate& update, std::size_t begin, std::size_t end) {
  const AdamUpdate s = update;
  float* __restrict p = s.parameter;
  float* __restrict m = s.average;
  float* __restrict v = s.square;
  const float* __restrict first = s.gradient;
  const float* __restrict second = s.second;
  const bool decays = s.decay != 0;
  for (std::size_t i = begin; i < end; ++i) {
    const float gradient = gradient_of<kTwo>(first, second, i);
    const float g = decays ? multiply_add(p[i], s.decay, gradient) : gradient;
    const float average = multiply_add(g, s.rest1, m[i] * s.beta1);
    const float square = multiply_add(s.rest2 * g, g, v[i] * s.beta2);
    m[i] = average;
    v[i] = square;
    p[i] = p[i] * s.keep + s.minus_rate * average / (__builtin_sqrtf(square) / s.root + s.epsilon);
  }
}

template <bool kTwo>
void run(const SgdUpdate& update, std::size_t begin, std::size_t end) {
  const SgdUpdate s = update;
  float* __restrict p = s.parameter;
  float* __restrict buffer = s.buffer;
  const float* __restrict first = s.gradient;
  const float* __restrict second = s.second;
  const bool decays = s.decay != 0;
  if (buffer == nullptr) {
    for (std::size_t i = begin; i < end; ++i) {
      const float gradient = gradient_of<kTwo>(first, second, i);
      const float g = decays ? multiply_add(p[i], s.decay, gradient) : gradient;
      p[i] = multiply_add(g, s.minus_rate, p[i]);
    }
    return;
  }
  for (std::size_t i = begin; i < end; ++i) {
    const float gradient = gradient_of<kTwo>(first, second, i);
    const float g = decays ? multiply_add(p[i], s.decay, gradient) : gradient;
    const float speed = multiply_add(g, s.rest, buffer[i] * s.momentum);
    buffer[i] = speed;
    p[i] = multiply_add(s.nesterov ? multiply_add(speed, s.momentum, g) : speed, s.minus_rate, p[i]);
  }
}

void apply(const AdamUpdate& update, std::size_t begin, std::size_t end) {
  update.second == nullptr ? run<false>(update, begin, end) : run<true>(update, begin, end);
}
void apply(const SgdUpdate& update, std::size_t begin, std::size_t end) {
  update.second == nullptr ? run<false>(update, begin, end) : run<true>(update, begin, end);
}

}  // namespace lockstep::optim::LOCKSTEP_KERNEL
#endif
