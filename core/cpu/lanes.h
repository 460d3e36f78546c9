// One register of float32 or float64 values, as wide as this library's instruction set has them, and exp() on it.
// Main entry: Lanes<A>, load_lanes(), store_lanes(), exp_lanes(); convert_run() between storage and compute types.
#pragma once

#include <anello/core/cpu/convert.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__AVX512F__) || defined(__AVX2__) || defined(__F16C__)
#include <immintrin.h>
#endif

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
#if defined(__AVX512F__)
  const auto mask = (1u << n) - 1u;
  if constexpr (sizeof(A) == 4) {
    return std::bit_cast<Lanes<A>>(_mm512_mask_loadu_ps(_mm512_set1_ps(rest), static_cast<__mmask16>(mask), p));
  } else {
    return std::bit_cast<Lanes<A>>(_mm512_mask_loadu_pd(_mm512_set1_pd(rest), static_cast<__mmask8>(mask), p));
  }
#else
  Lanes<A> v = splat(rest);
  std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(A));
  return v;
#endif
}
template <class A, class V>
inline void store_part(A* p, int64_t n, V v) {
  static_assert(std::is_same_v<V, Lanes<A>>);
  if (n == kLanes<A>) return store_lanes(p, v);
#if defined(__AVX512F__)
  const auto mask = (1u << n) - 1u;
  if constexpr (sizeof(A) == 4)
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>(mask), std::bit_cast<__m512>(v));
  else
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>(mask), std::bit_cast<__m512d>(v));
#else
  std::memcpy(p, &v, static_cast<size_t>(n) * sizeof(A));
#endif
}

using HalfBits __attribute__((vector_size(kRegisterBytes / 2))) = uint16_t;
using UInt32Lanes __attribute__((vector_size(kRegisterBytes))) = uint32_t;

// The compiler splits conversions between 16 and 32 bits in halves; where there is one instruction, it is named. The
// forms with a mask of all lanes keep GCC 12 from warning of undefined values inside its own headers.

/// 16-bit values as float32.
inline FloatLanes widen(HalfBits bits, BFloat16) {
#if defined(__AVX512F__)
  const auto wide = std::bit_cast<UInt32Lanes>(_mm512_maskz_cvtepu16_epi32(0xffff, std::bit_cast<__m256i>(bits)));
#elif defined(__AVX2__)
  const auto wide = std::bit_cast<UInt32Lanes>(_mm256_cvtepu16_epi32(std::bit_cast<__m128i>(bits)));
#else
  const auto wide = __builtin_convertvector(bits, UInt32Lanes);
#endif
  return std::bit_cast<FloatLanes>(wide << 16);
}
inline FloatLanes widen(HalfBits bits, Float16) {
#if defined(__AVX512F__)
  return std::bit_cast<FloatLanes>(_mm512_maskz_cvtph_ps(0xffff, std::bit_cast<__m256i>(bits)));
#elif defined(__F16C__)
  return std::bit_cast<FloatLanes>(_mm256_cvtph_ps(std::bit_cast<__m128i>(bits)));
#else
  FloatLanes v;
  for (int i = 0; i < kLanes<float>; ++i) v[i] = static_cast<float>(std::bit_cast<Float16>(uint16_t{bits[i]}));
  return v;
#endif
}
/// Rounded to nearest, ties to even; NaN stays NaN.
inline HalfBits narrow(FloatLanes v, BFloat16) {
  const UInt32Lanes u = std::bit_cast<UInt32Lanes>(v), rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const UInt32Lanes kept = v != v ? (u >> 16) | 0x40u : rounded;
#if defined(__AVX512F__)
  return std::bit_cast<HalfBits>(_mm512_maskz_cvtepi32_epi16(0xffff, std::bit_cast<__m512i>(kept)));
#else
  return __builtin_convertvector(kept, HalfBits);
#endif
}
inline HalfBits narrow(FloatLanes v, Float16) {
#if defined(__AVX512F__)
  return std::bit_cast<HalfBits>(
      _mm512_maskz_cvtps_ph(0xffff, std::bit_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  return std::bit_cast<HalfBits>(
      _mm256_cvtps_ph(std::bit_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  HalfBits bits;
  for (int i = 0; i < kLanes<float>; ++i) bits[i] = Float16(float{v[i]}).bits;
  return bits;
#endif
}

/// n values (at most kLanes) of a storage type, float or double or 16 bits wide, in the type they are computed in; the
/// others are 0.
template <class T>
inline Lanes<ComputeOf<T>> read_lanes(const T* p, int64_t n) {
  if constexpr (sizeof(T) == 2) {
    HalfBits bits{};
    if (n == kLanes<float>)
      std::memcpy(&bits, p, sizeof bits);
    else
      std::memcpy(&bits, p, static_cast<size_t>(n) * 2);
    return widen(bits, T());
  } else {
    return load_part(p, n, T(0));
  }
}
/// The converse: rounds once.
template <class T>
inline void write_lanes(T* p, int64_t n, Lanes<ComputeOf<T>> v) {
  if constexpr (sizeof(T) == 2) {
    const HalfBits bits = narrow(v, T());
    if (n == kLanes<float>)
      std::memcpy(static_cast<void*>(p), &bits, sizeof bits);
    else
      std::memcpy(static_cast<void*>(p), &bits, static_cast<size_t>(n) * 2);
  } else {
    store_part(p, n, v);
  }
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
namespace detail {
/// Lane i of the result is lane i ^ step of v.
template <size_t step, class V, size_t... I>
inline V exchange(V v, std::index_sequence<I...>) {
  return __builtin_shufflevector(v, v, (I ^ step)...);
}
/// Combines all lanes in pairs, pairs of pairs and so on, always in the same order.
template <size_t step, class V, class F>
inline auto fold_lanes(V v, const F& f) {
  constexpr size_t count = sizeof(V) / sizeof(v[0]);
  if constexpr (step == count)
    return v[0];
  else
    return fold_lanes<2 * step>(f(v, exchange<step>(v, std::make_index_sequence<count>())), f);
}
}  // namespace detail
/// Sum of the lanes, in a fixed order.
template <class V>
inline auto sum_lanes(V v) {
  return detail::fold_lanes<1>(v, [](V a, V b) { return a + b; });
}
/// The largest lane; NaN if one is NaN.
template <class V>
inline auto max_lane(V v) {
  return detail::fold_lanes<1>(v, [](V a, V b) { return max_lanes(a, b); });
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
  // Far below, the product would pass through subnormals, which costs a hundred cycles for what is 0 anyway (masked
  // entries).
  const auto vanishes = x < kLow;
  x = vanishes ? splat(A(0)) : x;
  x = x > kHigh ? splat(kHigh) : x;
  const Lanes<A> shifted = x * A(1.4426950408889634074) + kShift, n = shifted - kShift;
  const Lanes<A> r = (x - n * kLn2High) - n * kLn2Low;
  Lanes<A> y = splat(A(1));
  for (int k = kTerms; k >= 1; --k) y = y * r * (A(1) / A(k)) + A(1);
  // 2^n in two factors, so that neither overflows where the product does not, and subnormals round once.
  const IntLanes<A> power = std::bit_cast<IntLanes<A>>(shifted) - std::bit_cast<I>(kShift), half = power >> 1;
  const Lanes<A> first = std::bit_cast<Lanes<A>>((half + kBias) << kMantissa);
  const Lanes<A> second = std::bit_cast<Lanes<A>>((power - half + kBias) << kMantissa);
  return vanishes ? splat(A(0)) : y * first * second;
}

}  // namespace anello::kernel
