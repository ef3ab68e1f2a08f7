// Conversions between float32 and float16 or bfloat16, in plain C++ that the compiler can vectorise. No templates of
// the standard library are used, because this file is compiled for several vector widths: the linker keeps only one
// copy of a template's function, which may be of the wrong width.
#pragma once

#include <stdint.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace {

inline float float_of_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float bfloat16_to_float(uint16_t value) { return float_of_bits(static_cast<uint32_t>(value) << 16); }

inline uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40U;  // the bit keeps it a NaN when the low bits are dropped
  return static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

#if defined(__F16C__)
inline float float16_to_float(uint16_t value) { return _cvtsh_ss(value); }
inline uint16_t float_to_float16(float value) {
  return static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
inline float float16_to_float(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000U) << 16;
  const uint32_t exponent = (value >> 10) & 0x1fU;
  const uint32_t mantissa = value & 0x3ffU;
  if (exponent == 0x1fU)  // infinity, or a NaN, which becomes a quiet one
    return float_of_bits(sign | 0x7f800000U | (mantissa << 13) | (mantissa != 0 ? 0x400000U : 0U));
  if (exponent != 0) return float_of_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float tiny = static_cast<float>(mantissa) * float_of_bits(0x33800000U);  // 2^-24
  return float_of_bits(sign | bits_of_float(tiny));
}

inline uint16_t float_to_float16(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // 65520 and more become infinity
  if (magnitude < 0x38800000U) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    const float shifted = float_of_bits(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (bits_of_float(shifted) - 0x3f000000U));
  }
  const uint32_t rounded = magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}
#endif

}  // namespace
