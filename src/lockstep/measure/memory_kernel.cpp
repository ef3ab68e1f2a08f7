#include "lockstep/measure/memory_kernel.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::measure {
namespace {

using Loop = void (*)(const std::byte* const*, std::size_t, std::byte* const*, std::size_t, std::size_t);

namespace baseline {
constexpr std::size_t kWidth = 16;
#define LOCKSTEP_TARGET
#include "lockstep/measure/memory_kernel_loop.h"
#undef LOCKSTEP_TARGET
}  // namespace baseline

#if defined(__x86_64__)
namespace avx2 {
constexpr std::size_t kWidth = 32;
#define LOCKSTEP_TARGET __attribute__((target("avx2")))
#include "lockstep/measure/memory_kernel_loop.h"
#undef LOCKSTEP_TARGET
}  // namespace avx2

namespace avx512 {
constexpr std::size_t kWidth = 64;
#define LOCKSTEP_TARGET __attribute__((target("avx512f")))
#include "lockstep/measure/memory_kernel_loop.h"
#undef LOCKSTEP_TARGET
}  // namespace avx512
#endif

Loop loop_of(Store store, std::size_t sources, std::size_t targets) {
#if defined(__x86_64__)
  if (store == Store::lines && __builtin_cpu_supports("avx512f")) return avx512::loop_for(sources, targets);
  if (__builtin_cpu_supports("avx2")) return avx2::loop_for(sources, targets);
#endif
  static_cast<void>(store);
  return baseline::loop_for(sources, targets);
}

#if defined(__x86_64__)
// Stores whole cache lines, so that the processor need not read what it overwrites.
void sum_past_caches(std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
                     std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) {
    __m128 line[4];
    for (int part = 0; part < 4; ++part)
      line[part] = _mm_load_ps(reinterpret_cast<const float*>(sources[0] + at) + 4 * part);
    for (std::size_t s = 1; s < sources.size(); ++s)
      for (int part = 0; part < 4; ++part)
        line[part] = _mm_add_ps(line[part], _mm_load_ps(reinterpret_cast<const float*>(sources[s] + at) + 4 * part));
    for (std::byte* target : targets)
      for (int part = 0; part < 4; ++part) _mm_stream_ps(reinterpret_cast<float*>(target + at) + 4 * part, line[part]);
  }
  _mm_sfence();
}

void copy_string(std::byte* target, const std::byte* source, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(bytes) : : "memory");
}
#else
void copy_string(std::byte* target, const std::byte* source, std::size_t bytes) { std::memcpy(target, source, bytes); }
#endif

}  // namespace

void sum_to_all(std::span<const std::byte* const> sources, std::span<std::byte* const> targets, std::size_t bytes,
                Store store) {
  bytes = bytes / 128 * 128;
#if defined(__x86_64__)
  if (store == Store::non_temporal) return sum_past_caches(sources, targets, bytes);
#endif
  if (store == Store::string && sources.size() == 1) {
    for (std::byte* target : targets) copy_string(target, sources[0], bytes);
    return;
  }
  loop_of(store, sources.size(), targets.size())(sources.data(), sources.size(), targets.data(), targets.size(), bytes);
}

}  // namespace lockstep::measure
