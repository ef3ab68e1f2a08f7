// The loops behind reduce.h. reduce_baseline.cpp and reduce_avx2.cpp include this file, once for each vector width, and
// set LOCKSTEP_KERNELS to the name of the function that it defines.
#include "lockstep/collectives/half.h"
#include "lockstep/collectives/kernels.h"

namespace lockstep::collectives {
namespace {

using std::size_t;

// How elements of a type are stored in memory (Stored), and the type for arithmetic on them (Value). Integers are added
// and multiplied as unsigned numbers, so that they wrap.
template <typename S, typename V>
struct Plain {
  using Stored = S;
  using Value = V;
  static Value load(Stored value) { return static_cast<Value>(value); }
  static Stored store(Value value) { return static_cast<Stored>(value); }
};
struct Half {
  using Stored = uint16_t;
  using Value = float;
  static float load(uint16_t value) { return float16_to_float(value); }
  static uint16_t store(float value) { return float_to_float16(value); }
};
struct Brain {
  using Stored = uint16_t;
  using Value = float;
  static float load(uint16_t value) { return bfloat16_to_float(value); }
  static uint16_t store(float value) { return float_to_bfloat16(value); }
};

struct Sum {
  template <typename V>
  static V apply(V a, V b) {
    return static_cast<V>(a + b);
  }
};
struct Product {
  template <typename V>
  static V apply(V a, V b) {
    return static_cast<V>(a * b);
  }
};
struct Min {
  template <typename V>
  static V apply(V a, V b) {
    return b < a || b != b ? b : a;  // a NaN is kept
  }
};
struct Max {
  template <typename V>
  static V apply(V a, V b) {
    return b > a || b != b ? b : a;
  }
};

// Two sources are combined in one pass. A destination is one of the sources or overlaps neither of them, so no element
// depends on another one.
// region two_sources
template <typename T, typename F, bool kDivide, int kDestinations>
void two_sources(const Job& job) {
  using S = typename T::Stored;
  using V = typename T::Value;
  const S* a = reinterpret_cast<const S*>(job.sources[0]);
  const S* b = reinterpret_cast<const S*>(job.sources[1]);
  S* to = reinterpret_cast<S*>(job.destinations[0]);
  S* too = reinterpret_cast<S*>(job.destinations[kDestinations - 1]);
  const V divisor = static_cast<V>(job.divisor);
#pragma GCC ivdep
  for (size_t i = 0; i < job.count; ++i) {
    V value = F::template apply<V>(T::load(a[i]), T::load(b[i]));
    if constexpr (kDivide) value = static_cast<V>(value / divisor);
    to[i] = T::store(value);
    if constexpr (kDestinations == 2) too[i] = to[i];
  }
}
// endregion

// More sources are combined in blocks of values that stay in the first-level cache. Each pass is a function of its own,
// so that the compiler sees one loop without aliasing and vectorises it.
constexpr size_t kBlock = 512;

template <typename T>
[[gnu::noinline]] void load_block(typename T::Value* __restrict values, const typename T::Stored* __restrict source,
                                  size_t n) {
  for (size_t i = 0; i < n; ++i) values[i] = T::load(source[i]);
}
template <typename T, typename F>
[[gnu::noinline]] void add_block(typename T::Value* __restrict values, const typename T::Stored* __restrict source,
                                 size_t n) {
  for (size_t i = 0; i < n; ++i) values[i] = F::template apply<typename T::Value>(values[i], T::load(source[i]));
}
template <typename T>
[[gnu::noinline]] void divide_block(typename T::Value* values, typename T::Value divisor, size_t n) {
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<typename T::Value>(values[i] / divisor);
}
template <typename T>
[[gnu::noinline]] void store_block(typename T::Stored* __restrict destination,
                                   const typename T::Value* __restrict values, size_t n) {
  for (size_t i = 0; i < n; ++i) destination[i] = T::store(values[i]);
}

template <typename T, typename F, bool kDivide>
void any_sources(const Job& job) {
  using S = typename T::Stored;
  typename T::Value values[kBlock];
  for (size_t begin = 0; begin < job.count; begin += kBlock) {
    const size_t n = job.count - begin < kBlock ? job.count - begin : kBlock;
    load_block<T>(values, reinterpret_cast<const S*>(job.sources[0]) + begin, n);
    for (size_t s = 1; s < job.source_count; ++s)
      add_block<T, F>(values, reinterpret_cast<const S*>(job.sources[s]) + begin, n);
    if constexpr (kDivide) divide_block<T>(values, static_cast<typename T::Value>(job.divisor), n);
    for (size_t d = 0; d < job.destination_count; ++d)
      store_block<T>(reinterpret_cast<S*>(job.destinations[d]) + begin, values, n);
  }
}

template <typename T, typename F, bool kDivide = false>
void run(const Job& job) {
  if (job.source_count == 2 && job.destination_count == 1) return two_sources<T, F, kDivide, 1>(job);
  if (job.source_count == 2 && job.destination_count == 2) return two_sources<T, F, kDivide, 2>(job);
  any_sources<T, F, kDivide>(job);
}

// `Ordered` is the type for min and max, where signed integers must be compared as signed numbers.
template <typename T, typename Ordered = T>
void by_op(const Job& job) {
  switch (job.op) {
    case ReduceOp::sum:
      return run<T, Sum>(job);
    case ReduceOp::mean:
      return job.divisor == 1 ? run<T, Sum>(job) : run<T, Sum, true>(job);
    case ReduceOp::min:
      return run<Ordered, Min>(job);
    case ReduceOp::max:
      return run<Ordered, Max>(job);
    case ReduceOp::product:
      return run<T, Product>(job);
  }
}

}  // namespace

void LOCKSTEP_KERNELS(const Job& job) {
  switch (job.dtype) {
    case DType::float32:
      return by_op<Plain<float, float>>(job);
    case DType::float64:
      return by_op<Plain<double, double>>(job);
    case DType::float16:
      return by_op<Half>(job);
    case DType::bfloat16:
      return by_op<Brain>(job);
    case DType::int8:
      return by_op<Plain<uint8_t, uint8_t>, Plain<int8_t, int8_t>>(job);
    case DType::int32:
      return by_op<Plain<uint32_t, uint32_t>, Plain<int32_t, int32_t>>(job);
    case DType::int64:
      return by_op<Plain<uint64_t, uint64_t>, Plain<int64_t, int64_t>>(job);
    case DType::uint8:
      return by_op<Plain<uint8_t, uint8_t>>(job);
  }
}

}  // namespace lockstep::collectives
