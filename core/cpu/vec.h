// A register of values with the vocabulary that elementwise functors are written in: operators, comparisons, where().
// Main entry: Vec<C> for C = float, double, int64_t; vec_loop(). Functions such as exp() are in vec_math.h.
#pragma once

#include <anello/core/cpu/lanes.h>

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace anello::kernel {

namespace detail {
template <class C>
struct VecTypes {
  using Native = kernel::Lanes<C>;
  using Bits = kernel::IntLanes<C>;
};
template <>
struct VecTypes<int64_t> {
  using Native = kernel::Int64Lanes;
  using Bits = kernel::Int64Lanes;
};
}  // namespace detail

/// The result of a comparison: all bits of a lane set or none.
template <class C>
struct Mask {
  typename detail::VecTypes<C>::Bits v;
  friend Mask operator&(Mask a, Mask b) { return {a.v & b.v}; }
  friend Mask operator|(Mask a, Mask b) { return {a.v | b.v}; }
  friend Mask operator^(Mask a, Mask b) { return {a.v ^ b.v}; }
  friend Mask operator!(Mask a) { return {~a.v}; }
};

template <class C>
struct Vec {
  using Native = typename detail::VecTypes<C>::Native;
  using Bits = typename detail::VecTypes<C>::Bits;
  static constexpr int kWidth = kRegisterBytes / static_cast<int>(sizeof(C));

  Native v;

  static Vec load(const C* p) {
    Vec r;
    std::memcpy(&r.v, p, sizeof r.v);
    return r;
  }
  void store(C* p) const { std::memcpy(p, &v, sizeof v); }
  static Vec splat(C value) { return {value - Native{}}; }
  Bits bits() const { return std::bit_cast<Bits>(v); }
  static Vec from_bits(Bits b) { return {std::bit_cast<Native>(b)}; }
  /// f of each lane, for functions that have no vector form.
  template <class F>
  Vec each(const F& f) const {
    Vec r = *this;
    for (int i = 0; i < kWidth; ++i) r.v[i] = f(v[i]);
    return r;
  }

  // Integers wrap around, without the undefined behaviour of signed overflow.
  friend Vec operator+(Vec a, Vec b) {
    return combine(a, b, [](auto x, auto y) { return x + y; });
  }
  friend Vec operator-(Vec a, Vec b) {
    return combine(a, b, [](auto x, auto y) { return x - y; });
  }
  friend Vec operator*(Vec a, Vec b) {
    return combine(a, b, [](auto x, auto y) { return x * y; });
  }
  friend Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
  friend Vec operator-(Vec a) {
    if constexpr (std::is_floating_point_v<C>)
      return {-a.v};
    else
      return Vec{} - a;
  }
  friend Vec operator+(Vec a, double b) { return a + splat(static_cast<C>(b)); }
  friend Vec operator-(Vec a, double b) { return a - splat(static_cast<C>(b)); }
  friend Vec operator*(Vec a, double b) { return a * splat(static_cast<C>(b)); }
  friend Vec operator/(Vec a, double b) { return a / splat(static_cast<C>(b)); }

  friend Mask<C> eq(Vec a, Vec b) { return {a.v == b.v}; }
  friend Mask<C> ne(Vec a, Vec b) { return {a.v != b.v}; }
  friend Mask<C> lt(Vec a, Vec b) { return {a.v < b.v}; }
  friend Mask<C> le(Vec a, Vec b) { return {a.v <= b.v}; }
  friend Mask<C> gt(Vec a, Vec b) { return {a.v > b.v}; }
  friend Mask<C> ge(Vec a, Vec b) { return {a.v >= b.v}; }
  friend Mask<C> ne(Vec a, double b) { return ne(a, splat(static_cast<C>(b))); }
  friend Mask<C> lt(Vec a, double b) { return lt(a, splat(static_cast<C>(b))); }
  friend Mask<C> le(Vec a, double b) { return le(a, splat(static_cast<C>(b))); }
  friend Mask<C> gt(Vec a, double b) { return gt(a, splat(static_cast<C>(b))); }
  friend Mask<C> ge(Vec a, double b) { return ge(a, splat(static_cast<C>(b))); }
  friend Mask<C> isnan(Vec a) { return {a.v != a.v}; }
  friend Vec where(Mask<C> mask, Vec a, Vec b) { return {mask.v ? a.v : b.v}; }
  /// `value` in every lane; the tensor's form of it is a scalar of x's dtype.
  friend Vec constant(Vec, double value) { return splat(static_cast<C>(value)); }
  /// NaN if either is NaN.
  friend Vec maximum(Vec a, Vec b) { return where(gt(a, b) | isnan(a), a, b); }
  friend Vec minimum(Vec a, Vec b) { return where(lt(a, b) | isnan(a), a, b); }

 private:
  template <class F>
  static Vec combine(Vec a, Vec b, const F& f) {
    if constexpr (std::is_floating_point_v<C>) {
      return {f(a.v, b.v)};
    } else {
      using Unsigned __attribute__((vector_size(kRegisterBytes))) = uint64_t;
      return {std::bit_cast<Native>(f(std::bit_cast<Unsigned>(a.v), std::bit_cast<Unsigned>(b.v)))};
    }
  }
};

/// out[i] = g(in[0][i], ...) for i in [0, n), a register at a time. The last, partial one is computed as a whole one
/// too (idle lanes hold 1): an element's result does not depend on its place. out may be one of the inputs.
template <class C, int K, class G>
inline void vec_loop(C* out, const C* const* in, int64_t n, const G& g) {
  constexpr int kWidth = Vec<C>::kWidth;
  const auto run = [&]<int... I>(std::integer_sequence<int, I...>, const C* const* from, int64_t i) {
    return g(Vec<C>::load(from[I] + i)...);
  };
  constexpr auto operands = std::make_integer_sequence<int, K>{};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) run(operands, in, i).store(out + i);
  if (i == n) return;
  C rest[K + 1][kWidth];
  const C* from[K + 1];
  const auto size = static_cast<size_t>(n - i) * sizeof(C);
  for (int k = 0; k < K; ++k) {
    Vec<C>::splat(C{1}).store(rest[k]);
    std::memcpy(rest[k], in[k] + i, size);
    from[k] = rest[k];
  }
  run(operands, from, 0).store(rest[K]);
  std::memcpy(out + i, rest[K], size);
}

}  // namespace anello::kernel
