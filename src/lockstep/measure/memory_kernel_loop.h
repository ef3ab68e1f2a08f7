// The loops with plain stores. memory_kernel.cpp includes this file once for each vector width, with kWidth as its
// bytes and LOCKSTEP_TARGET as the attribute that allows the compiler to use it.

// kSources and kTargets are the numbers of sources and targets if they are known when this is compiled, otherwise 0.
template <std::size_t kSources, std::size_t kTargets>
LOCKSTEP_TARGET void sum_vectors(const std::byte* const* sources, std::size_t source_count, std::byte* const* targets,
                                 std::size_t target_count, std::size_t bytes) {
  using Vector = float __attribute__((vector_size(kWidth), may_alias));
  constexpr bool kKnown = kSources * kTargets != 0;
  const std::byte* from[kKnown ? kSources : 1];
  std::byte* to[kKnown ? kTargets : 1];
  if constexpr (kKnown) {  // held in registers, so that no store can change them
    for (std::size_t s = 0; s < kSources; ++s) from[s] = sources[s];
    for (std::size_t t = 0; t < kTargets; ++t) to[t] = targets[t];
  }
  const std::byte* const* in = kKnown ? from : sources;
  std::byte* const* out = kKnown ? to : targets;
  const std::size_t in_count = kKnown ? kSources : source_count;
  const std::size_t out_count = kKnown ? kTargets : target_count;
  for (std::size_t at = 0; at < bytes; at += kWidth) {
    Vector sum = *reinterpret_cast<const Vector*>(in[0] + at);
    for (std::size_t s = 1; s < in_count; ++s) sum += *reinterpret_cast<const Vector*>(in[s] + at);
    for (std::size_t t = 0; t < out_count; ++t) *reinterpret_cast<Vector*>(out[t] + at) = sum;
  }
}

// The combinations that ops over 2, 3 and 4 ranks need have loops of their own.
inline Loop loop_for(std::size_t sources, std::size_t targets) {
  if (sources == 1 && targets == 1) return sum_vectors<1, 1>;
  if (sources == 1 && targets == 2) return sum_vectors<1, 2>;
  if (sources == 1 && targets == 3) return sum_vectors<1, 3>;
  if (sources == 2 && targets == 1) return sum_vectors<2, 1>;
  if (sources == 3 && targets == 1) return sum_vectors<3, 1>;
  if (sources == 4 && targets == 1) return sum_vectors<4, 1>;
  if (sources == 2 && targets == 2) return sum_vectors<2, 2>;
  if (sources == 3 && targets == 3) return sum_vectors<3, 3>;
  if (sources == 4 && targets == 4) return sum_vectors<4, 4>;
  return sum_vectors<0, 0>;
}
