// Mathematical functions of a register: float32 in vector code within 2-3 ulp, float64 through libm lane by lane.
// Main entry: exp(), log(), tanh(), erf(), sigmoid(), ... found by argument-dependent lookup, so that functors just
// call them.
//
// float32 reduces the argument and evaluates a polynomial: Taylor series where a few terms reach rounding error, else
// coefficients fitted here (weighted least squares on 400 Chebyshev nodes, reweighted towards the minimax fit).
// Overflow gives infinity, NaN stays NaN, subnormals are kept.
#pragma once

#include <anello/core/cpu/vec.h>

#include <cmath>
#include <limits>
#include <utility>

namespace anello::kernel {

namespace detail {
template <class C>
inline Vec<C> polynomial(Vec<C> x, std::initializer_list<C> coefficients) {  // highest power first
  Vec<C> y = Vec<C>::splat(*coefficients.begin());
  for (const C* c = coefficients.begin() + 1; c != coefficients.end(); ++c) y = y * x + Vec<C>::splat(*c);
  return y;
}
template <class C>
inline constexpr typename std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t> kSignBit = sizeof(C) == 4 ? 0x80000000u
                                                                                                           : 1ull << 63;
}  // namespace detail

/// The size of `a` with the sign of `sign`.
template <class C>
inline Vec<C> copy_sign(Vec<C> a, Vec<C> sign) {
  using Int = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
  constexpr Int bit = static_cast<Int>(detail::kSignBit<C>);
  return Vec<C>::from_bits((a.bits() & ~bit) | (sign.bits() & bit));
}
template <class C>
inline Vec<C> abs(Vec<C> x) {
  if constexpr (std::is_floating_point_v<C>)
    return copy_sign(x, Vec<C>{});
  else
    return where(lt(x, 0.0), -x, x);
}
/// x itself for 0, -0 and NaN.
template <class C>
inline Vec<C> sign(Vec<C> x) {
  return where(gt(x, 0.0), Vec<C>::splat(C{1}), where(lt(x, 0.0), Vec<C>::splat(C{-1}), x));
}

/// Halves to even: adding and subtracting 2^mantissa leaves the integer part.
template <class C>
inline Vec<C> round(Vec<C> x) {
  if constexpr (!std::is_floating_point_v<C>)
    return x;
  else {
    const C big = sizeof(C) == 4 ? C(0x1p23) : C(0x1p52);
    const Vec<C> size = abs(x);
    const Vec<C> rounded = (size + Vec<C>::splat(big)) - Vec<C>::splat(big);
    return where(lt(size, Vec<C>::splat(big)), copy_sign(rounded, x), x);
  }
}
template <class C>
inline Vec<C> floor(Vec<C> x) {
  if constexpr (!std::is_floating_point_v<C>)
    return x;
  else {
    const Vec<C> r = round(x);
    return copy_sign(where(gt(r, x), r - 1.0, r), x);
  }
}
template <class C>
inline Vec<C> ceil(Vec<C> x) {
  if constexpr (!std::is_floating_point_v<C>)
    return x;
  else {
    const Vec<C> r = round(x);
    return copy_sign(where(lt(r, x), r + 1.0, r), x);
  }
}
template <class C>
inline Vec<C> sqrt(Vec<C> x) {
  C lanes[Vec<C>::kWidth];  // the compiler turns this loop into one instruction; vector types have no square root
  x.store(lanes);
  for (C& lane : lanes) lane = std::sqrt(lane);
  return Vec<C>::load(lanes);
}
/// Limits to [low, high]; NaN stays NaN. The bounds of integers saturate.
template <class C>
inline Vec<C> clamp(Vec<C> x, double low, double high) {
  C bottom = static_cast<C>(0), top = bottom;
  if constexpr (std::is_floating_point_v<C>) {
    bottom = static_cast<C>(low), top = static_cast<C>(high);
  } else {
    constexpr double edge = 0x1p63;
    bottom = low > -edge ? (low < edge ? static_cast<C>(low) : std::numeric_limits<C>::max())
                         : std::numeric_limits<C>::min();
    top = high < edge ? (high > -edge ? static_cast<C>(high) : std::numeric_limits<C>::min())
                      : std::numeric_limits<C>::max();
  }
  const Vec<C> lower = Vec<C>::splat(bottom), upper = Vec<C>::splat(top);
  const Vec<C> raised = where(lt(x, lower), lower, x);
  return where(gt(raised, upper), upper, raised);
}

template <class C>
inline Vec<C> exp(Vec<C> x) {
  return {exp_lanes<C>(x.v)};
}

/// x = 2^e m with m in [sqrt(1/2), sqrt(2)), f = m - 1: log x = e ln 2 + f - f^2/2 + f^3 P(f).
inline Vec<float> log(Vec<float> x) {
  using V = Vec<float>;
  const Mask<float> tiny = lt(x, V::splat(0x1p-126f));
  const V scaled = where(tiny, x * 0x1p23, x);
  const V::Bits shifted = scaled.bits() - std::bit_cast<int32_t>(0x1.6a09e6p-1f), exponent = shifted >> 23;
  const V f = V::from_bits(scaled.bits() - (exponent << 23)) - 1.0;
  const V e = V{__builtin_convertvector(exponent, V::Native)} - where(tiny, V::splat(23), V::splat(0));
  const V p = detail::polynomial<float>(f, {0.0674645482f, -0.116756234f, 0.118882321f, -0.124055972f, 0.142195433f,
                                            -0.166679951f, 0.200021191f, -0.250000096f, 0.333333126f});
  const V square = f * f;
  const V small = e * V::splat(0x1.7f7d1cp-20f) + square * f * p - square * 0.5;
  V y = e * V::splat(0x1.62e4p-1f) + (small + f);
  const float infinity = std::numeric_limits<float>::infinity();
  y = where(eq(x, V::splat(infinity)), x, y);
  y = where(eq(x, V{}), V::splat(-infinity), y);
  return where(lt(x, 0.0) | isnan(x), V::splat(std::numeric_limits<float>::quiet_NaN()), y);
}

/// log(u) + (x - (u - 1)) / u with u = 1 + x rounded: the second term restores what the rounding lost.
inline Vec<float> log1p(Vec<float> x) {
  using V = Vec<float>;
  const V u = x + 1.0;
  const V lost = where(ge(x, 1.0), V::splat(1) - (u - x), x - (u - 1.0));
  const V y = log(u);
  const V fixed = where(gt(u, 0.0) & lt(u, V::splat(std::numeric_limits<float>::infinity())), y + lost / u, y);
  return where(lt(abs(x), 0x1p-24), x, fixed);
}

/// x = n ln 2 + r: 2^n (e^r - 1) + (2^n - 1), where e^r - 1 = r + r^2 / 2! + ...
inline Vec<float> expm1(Vec<float> x) {
  using V = Vec<float>;
  constexpr float shift = 12582912.0f;
  const V limited = clamp(x, -30.0, 89.0);
  const V shifted = limited * V::splat(1.44269504f) + V::splat(shift), n = shifted - V::splat(shift);
  const V r = (limited - n * V::splat(0x1.62e4p-1f)) - n * V::splat(0x1.7f7d1cp-20f);
  const V p =
      detail::polynomial<float>(r, {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f}) * r * r + r;
  // Half of 2^n, so that n = 128 does not overflow before the result does.
  const V half = V::from_bits((shifted.bits() - std::bit_cast<int32_t>(shift) + 126) << 23);
  const V y = (half * p + (half - 0.5)) * 2.0;
  return where(lt(abs(x), 0x1p-24), x, y);
}

/// tanh |x| = -t / (t + 2) with t = e^(-2|x|) - 1.
inline Vec<float> tanh(Vec<float> x) {
  const Vec<float> t = expm1(abs(x) * -2.0);
  return copy_sign(-t / (t + 2.0), x);
}

/// Below 1: x + x P(x^2). Above: 1 - e^Q(|x|) with Q = log erfc; beyond 4 it rounds to 1.
inline Vec<float> erf(Vec<float> x) {
  using V = Vec<float>;
  const V size = abs(x), square = x * x;
  const V small = x * detail::polynomial<float>(square, {7.88910277e-05f, -0.000802083626f, 0.00518953478f,
                                                         -0.0268544443f, 0.112836002f, -0.376126271f, 0.128379166f}) +
                  x;
  const V far = clamp(size, 0.0, 4.0);
  const V q = detail::polynomial<float>(far, {-2.1698007e-05f, 0.000441477405f, -0.00420530885f, 0.0252104061f,
                                              -0.108422207f, -0.633216295f, -1.12958036f, 0.00018847922f});
  return where(lt(size, 1.0), small, copy_sign(V::splat(1) - exp(q), x));
}

namespace detail {
/// sin(x) and cos(x) for float32: x = n pi/2 + r, reduced in double and in two steps since r may be as small as 2^-24,
/// then Taylor series in r; beyond 2^13 lane by lane.
inline std::pair<Vec<float>, Vec<float>> sin_cos(Vec<float> x) {
  using V = Vec<float>;
  constexpr float shift = 12582912.0f;
  const Mask<float> far = !lt(abs(x), 8192.0);
  const V near = where(far, V{}, x);
  const V shifted = near * V::splat(0.636619772f) + V::splat(shift);
  float reduced[V::kWidth], n[V::kWidth];
  near.store(reduced);
  (shifted - V::splat(shift)).store(n);
  for (int i = 0; i < V::kWidth; ++i)
    reduced[i] = static_cast<float>((reduced[i] - n[i] * 0x1.921fb54p+0) - n[i] * 0x1.10b4611a62633p-30);
  const V r = V::load(reduced);
  const V z = r * r;
  const V s = polynomial<float>(z, {1.0f / 362880, -1.0f / 5040, 1.0f / 120, -1.0f / 6}) * z * r + r;
  const V c = polynomial<float>(z, {-1.0f / 3628800, 1.0f / 40320, -1.0f / 720, 1.0f / 24, -0.5f}) * z + 1.0;
  const V::Bits quadrant = shifted.bits();
  const Mask<float> odd{(quadrant & 1) != 0};
  const V sine = where(odd, c, s), cosine = where(odd, s, c);
  V sin_x = V::from_bits(sine.bits() ^ ((quadrant & 2) << 30));
  V cos_x = V::from_bits(cosine.bits() ^ (((quadrant + 1) & 2) << 30));
  for (int i = 0; i < V::kWidth; ++i)
    if (far.v[i] != 0) [[unlikely]]
      sin_x.v[i] = std::sin(x.v[i]), cos_x.v[i] = std::cos(x.v[i]);
  return {sin_x, cos_x};
}
}  // namespace detail
inline Vec<float> sin(Vec<float> x) { return detail::sin_cos(x).first; }
inline Vec<float> cos(Vec<float> x) { return detail::sin_cos(x).second; }

inline Vec<double> log(Vec<double> x) {
  return x.each([](double v) { return std::log(v); });
}
inline Vec<double> log1p(Vec<double> x) {
  return x.each([](double v) { return std::log1p(v); });
}
inline Vec<double> expm1(Vec<double> x) {
  return x.each([](double v) { return std::expm1(v); });
}
inline Vec<double> tanh(Vec<double> x) {
  return x.each([](double v) { return std::tanh(v); });
}
inline Vec<double> erf(Vec<double> x) {
  return x.each([](double v) { return std::erf(v); });
}
inline Vec<double> sin(Vec<double> x) {
  return x.each([](double v) { return std::sin(v); });
}
inline Vec<double> cos(Vec<double> x) {
  return x.each([](double v) { return std::cos(v); });
}

/// 1 / (1 + e^-x) through e^-|x|, which never overflows.
template <class C>
inline Vec<C> sigmoid(Vec<C> x) {
  const Vec<C> t = exp(-abs(x));
  return where(lt(x, 0.0), t, constant(x, 1.0)) / (t + 1.0);
}
/// x to the power of a number; the common exponents without pow().
template <class C>
inline Vec<C> pow(Vec<C> x, double exponent) {
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == 1) return x;
  if (exponent == 0) return constant(x, 1.0);
  if (exponent == -1) return constant(x, 1.0) / x;
  const C e = static_cast<C>(exponent);
  return x.each([e](C v) { return std::pow(v, e); });
}

}  // namespace anello::kernel
