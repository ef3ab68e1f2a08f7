// The arithmetic of one Adam step on a piece of a parameter. adam_baseline.cpp and adam_avx2.cpp compile it with
// different flags, and adam.cpp chooses one of them at run time.
#pragma once

#include <cmath>
#include <cstddef>

namespace lockstep::train {

struct AdamPiece {
  float* parameter;
  const float* gradient;
  float* average;  // running average of the gradients
  float* square;   // running average of their squares
  std::size_t count;
  float beta1, rest1;  // rest = 1 - beta, rounded from double as libtorch does
  float beta2, rest2;
  float root;  // square root of the second bias correction
  float epsilon;
  float minus_rate;
  float decay;
};

void adam_baseline(const AdamPiece& piece);
void adam_avx2(const AdamPiece& piece);

}  // namespace lockstep::train

#ifdef LOCKSTEP_ADAM
namespace lockstep::train {

// Rounds where libtorch's add_(x, alpha) and addcmul_ round. They use one instruction for product and sum if the
// machine has one.
inline float multiply_add(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

void LOCKSTEP_ADAM(const AdamPiece& piece) {
  const AdamPiece s = piece;
  float* __restrict p = s.parameter;
  float* __restrict m = s.average;
  float* __restrict v = s.square;
  const float* __restrict grad = s.gradient;
  const bool decays = s.decay != 0;
  for (std::size_t i = 0; i < s.count; ++i) {
    const float g = decays ? multiply_add(p[i], s.decay, grad[i]) : grad[i];
    const float average = multiply_add(g, s.rest1, m[i] * s.beta1);
    const float square = multiply_add(s.rest2 * g, g, v[i] * s.beta2);
    m[i] = average;
    v[i] = square;
    p[i] += s.minus_rate * average / (__builtin_sqrtf(square) / s.root + s.epsilon);
  }
}

}  // namespace lockstep::train
#endif
