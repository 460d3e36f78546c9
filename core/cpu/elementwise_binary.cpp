// Kernels of the binary table: arithmetic, comparisons, logic.
// Main entry: binary_kernel<Functor>, one instantiation a row of ANELLO_BINARY_TABLE.
#include <anello/core/cpu/tiles.h>
#include <anello/core/cpu/vec_math.h>
#include <anello/core/kernels/binary_ops.h>

#include <stdexcept>

namespace anello::kernel {
namespace {

/// Raised inside a kernel for a value it has no result for; becomes Status::value_error.
struct BadValue : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class C, class F>
Vec<C> each_pair(Vec<C> a, Vec<C> b, const F& f) {
  Vec<C> r = a;
  for (int i = 0; i < Vec<C>::kWidth; ++i) r.v[i] = f(a.v[i], b.v[i]);
  return r;
}

template <class C>
C python_remainder(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    const C r = std::fmod(a, b);
    if (r == 0) return std::copysign(C{0}, b);
    return (r < 0) != (b < 0) ? r + b : r;
  } else {
    if (b == 0) throw BadValue("integer remainder by zero. Hint: use a floating-point dtype, or mask the zeros.");
    if (b == -1) return 0;  // the smallest integer by -1 overflows in hardware
    const C r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
}
template <class C>
C python_floor_divide(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (b == 0) return a / b;
    // Through the remainder, as Python: floor(a / b) would be off by one where a / b rounds up to an integer.
    const C r = std::fmod(a, b), quotient = (a - r) / b - (r != 0 && (r < 0) != (b < 0) ? C{1} : C{0});
    if (quotient == 0) return std::copysign(C{0}, a / b);
    const C below = std::floor(quotient);
    return quotient - below > C(0.5) ? below + 1 : below;
  } else {
    if (b == 0) throw BadValue("integer division by zero. Hint: use a floating-point dtype, or mask the zeros.");
    if (b == -1) return static_cast<C>(0 - static_cast<uint64_t>(a));
    const C q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
  }
}
inline int64_t int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) throw BadValue("integer to a negative power. Hint: use a floating-point dtype.");
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (; exponent > 0; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return static_cast<int64_t>(result);
}

}  // namespace

template <class C>
Vec<C> remainder(Vec<C> a, Vec<C> b) {
  return each_pair(a, b, [](C x, C y) { return python_remainder(x, y); });
}
template <class C>
Vec<C> floor_divide(Vec<C> a, Vec<C> b) {
  return each_pair(a, b, [](C x, C y) { return python_floor_divide(x, y); });
}
template <class C>
Vec<C> pow(Vec<C> a, Vec<C> b) {
  if constexpr (std::is_integral_v<C>)
    return each_pair(a, b, int_power);
  else
    return each_pair(a, b, [](C x, C y) { return std::pow(x, y); });
}

namespace {

template <class C>
Vec<C> as_value(Vec<C> value) {
  return value;
}
template <class C>
Vec<C> as_value(Mask<C> mask) {
  return where(mask, Vec<C>::splat(C{1}), Vec<C>{});
}

template <class F, class C>
void binary_tile(C* out, const C* const* in, int64_t n, const void* arguments) {
  const double alpha = static_cast<const BinaryParams*>(arguments)->alpha;
  vec_loop<C, 2>(out, in, n, [=](Vec<C> a, Vec<C> b) { return as_value(F::forward(a, b, alpha)); });
}

template <class F>
Status binary_kernel(const Context& ctx, const BinaryParams& p) {
  TileJob job{p.sizes, p.dims, &p.out, {&p.a, &p.b}, 2, &p};
  job.scalar = p.scalar, job.int_scalar = p.int_scalar;
  try {
    if constexpr (std::is_same_v<F, ops::Div>)
      with_float_type(p.dtype, [&]<class C>(C) { run_tiles<C>(ctx, job, binary_tile<F, C>); });
    else
      with_compute_type(p.dtype, [&]<class C>(C) { run_tiles<C>(ctx, job, binary_tile<F, C>); });
  } catch (const BadValue& e) {
    return ctx.error(Status::value_error, "%s", e.what());
  }
  return Status::ok;
}

#define ANELLO_ROW(function, Functor, dtypes) ANELLO_KERNEL(k##Functor, binary_kernel<ops::Functor>, dtypes);
ANELLO_BINARY_TABLE(ANELLO_ROW)

}  // namespace
}  // namespace anello::kernel
