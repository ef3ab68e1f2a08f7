#include "lockstep/collectives/reduce.h"

#include "lockstep/collectives/half.h"
#include "lockstep/collectives/kernels.h"

namespace lockstep::collectives {
namespace {

using Kernels = void (*)(const Job&);

Kernels best_for_this_machine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return reduce_avx2;  // every machine with AVX2 has F16C, too
#endif
  return reduce_baseline;
}

const Kernels kKernels = best_for_this_machine();

}  // namespace

void reduce(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources, std::size_t count,
            DType dtype, ReduceOp op, int divisor) {
  kKernels({destinations.data(), destinations.size(), sources.data(), sources.size(), count, dtype, op, divisor});
}

void reduce_into(std::byte* destination, const std::byte* source, std::size_t count, DType dtype, ReduceOp op,
                 int divisor) {
  std::byte* const destinations[] = {destination};
  const std::byte* const sources[] = {destination, source};
  reduce(destinations, sources, count, dtype, op, divisor);
}

float to_float(Float16 value) { return float16_to_float(value.bits); }
float to_float(BFloat16 value) { return bfloat16_to_float(value.bits); }
Float16 to_float16(float value) { return {float_to_float16(value)}; }
BFloat16 to_bfloat16(float value) { return {float_to_bfloat16(value)}; }

}  // namespace lockstep::collectives
