// One register of float32 or float64 values, as wide as this library's instruction set has them, and exp() on it.
// Main entry: Lanes<A>, load_lanes(), store_lanes(), exp_lanes(); convert_run() between storage and compute types.
#pragma once

#include <anello/core/cpu/convert.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

// Wide vectors are passed by value between inlined functions only: no ABI to keep.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace anello::kernel {

#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
#elif defined(__AVX__)
inline constexpr int kRegisterBytes = 32;
#else
inline constexpr int kRegisterBytes = 16;
#endif

using FloatLanes __attribute__((vector_size(kRegisterBytes))) = float;
using DoubleLanes __attribute__((vector_size(kRegisterBytes))) = double;
using Int32Lanes __attribute__((vector_size(kRegisterBytes))) = int32_t;
using Int64Lanes __attribute__((vector_size(kRegisterBytes))) = int64_t;
/// The type in which values stored as T, a float type, are computed.
template <class T>
using ComputeOf = std::conditional_t<std::is_same_v<T, double>, double, float>;
/// Copies n values with conversion; one side is ComputeOf the other.
template <class To, class From>
inline void convert_run(To* dst, const From* src, int64_t n) {
  if constexpr (std::is_same_v<To, float> || std::is_same_v<To, double>) {
    load_block(src, dtype_of<From>, 1, 0, n, 1, dst);
  } else {
    store_block(dst, dtype_of<To>, 1, 0, n, 1, src);
  }
}

/// A register of A (float or double), and of the integers of the same size.
template <class A>
using Lanes = std::conditional_t<sizeof(A) == 4, FloatLanes, DoubleLanes>;
template <class A>
using IntLanes = std::conditional_t<sizeof(A) == 4, Int32Lanes, Int64Lanes>;
/// Elements of A in one register.
template <class A>
inline constexpr int kLanes = kRegisterBytes / static_cast<int>(sizeof(A));

template <class A>
inline Lanes<A> load_lanes(const A* p) {
  Lanes<A> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class A, class V>
inline void store_lanes(A* p, V v) {
  static_assert(std::is_same_v<V, Lanes<A>>);
  std::memcpy(p, &v, sizeof v);
}
template <class A>
inline Lanes<A> splat(A value) {
  return value - Lanes<A>{};
}
/// kLanes<double> values as float64.
inline DoubleLanes load_double(const double* p) { return load_lanes(p); }
inline DoubleLanes load_double(const float* p) {
  using Half __attribute__((vector_size(kRegisterBytes / 2))) = float;
  Half v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, DoubleLanes);
}
/// The first n elements (at most kLanes); the others are `rest`.
template <class A>
inline Lanes<A> load_part(const A* p, int64_t n, A rest) {
  if (n == kLanes<A>) return load_lanes(p);
  Lanes<A> v = splat(rest);
  std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(A));
  return v;
}
template <class A, class V>
inline void store_part(A* p, int64_t n, V v) {
  static_assert(std::is_same_v<V, Lanes<A>>);
  if (n == kLanes<A>) return store_lanes(p, v);
  std::memcpy(p, &v, static_cast<size_t>(n) * sizeof(A));
}
/// Calls f(i, m) for i = 0, kLanes, 2 kLanes, ... below n, with m = kLanes but for the last, which has what is left.
template <class A, class F>
inline void for_lanes(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + kLanes<A> <= n; i += kLanes<A>) f(i, int64_t{kLanes<A>});
  if (i < n) f(i, n - i);
}
/// The larger of each pair; NaN if either is NaN.
template <class V>
inline V max_lanes(V a, V b) {
  const V larger = a > b ? a : b;  // b where either is NaN
  return a != a ? a : larger;
}
/// Sum of the lanes, in a fixed order.
template <class V>
inline auto sum_lanes(V v) {
  auto total = v[0];
  for (size_t i = 1; i < sizeof(V) / sizeof(v[0]); ++i) total += v[i];
  return total;
}

/// e^x to about 1 ulp over the whole range: 0 below, infinity above, subnormals between; NaN stays NaN.
/// x = n ln 2 + r with |r| <= ln 2 / 2, then the Taylor series of e^r (its remainder is below half an ulp) times 2^n.
template <class A>
inline Lanes<A> exp_lanes(Lanes<A> x) {
  using I = std::conditional_t<sizeof(A) == 4, int32_t, int64_t>;
  constexpr bool kSingle = sizeof(A) == 4;
  constexpr int kMantissa = kSingle ? 23 : 52, kBias = kSingle ? 127 : 1023, kTerms = kSingle ? 7 : 13;
  constexpr A kLow = kSingle ? A(-104) : A(-746), kHigh = kSingle ? A(89) : A(710);
  constexpr A kShift = kSingle ? A(12582912.0) : A(6755399441055744.0);  // 1.5 2^mantissa: adding it rounds to integers
  constexpr A kLn2High = kSingle ? A(0x1.62e4p-1) : A(0x1.62e42feep-1);  // few bits: n times it is exact
  constexpr A kLn2Low = kSingle ? A(0x1.7f7d1cf79abcap-20) : A(0x1.a39ef35793c76p-33);
  x = x < kLow ? splat(kLow) : x;
  x = x > kHigh ? splat(kHigh) : x;
  const Lanes<A> shifted = x * A(1.4426950408889634074) + kShift, n = shifted - kShift;
  const Lanes<A> r = (x - n * kLn2High) - n * kLn2Low;
  Lanes<A> y = splat(A(1));
  for (int k = kTerms; k >= 1; --k) y = y * r * (A(1) / A(k)) + A(1);
  // 2^n in two factors, so that neither overflows where the product does not, and subnormals round once.
  const IntLanes<A> power = std::bit_cast<IntLanes<A>>(shifted) - std::bit_cast<I>(kShift), half = power >> 1;
  const Lanes<A> first = std::bit_cast<Lanes<A>>((half + kBias) << kMantissa);
  const Lanes<A> second = std::bit_cast<Lanes<A>>((power - half + kBias) << kMantissa);
  return y * first * second;
}

}  // namespace anello::kernel
