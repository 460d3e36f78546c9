// Conversion of runs of elements between storage types and the types kernels compute in (float, double, int64_t).
// Main entry: load(), store(), convert<To>(value), with_compute_type().
//
// Rules: to 16-bit floats rounds once, to nearest even; NaN stays NaN; float to integer truncates toward zero and
// saturates (NaN gives 0); integer to narrower integer wraps; anything to bool is != 0.
#pragma once

#include <anello/core/dtype.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace anello::kernel {

namespace detail {
/// Double to float, rounded to odd: a second rounding to a type of at most 22 significant bits is then right.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  const uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const bool away = (back < 0 ? -back : back) > (value < 0 ? -value : value);
  return std::bit_cast<float>((away ? bits - 1 : bits) | 1u);
}

/// Truncation toward zero with saturation. Free of branches, so that loops over it vectorise.
template <class To, class From>
inline To saturate(From value) {
  constexpr To lowest = std::numeric_limits<To>::min(), largest = std::numeric_limits<To>::max();
  constexpr From low = static_cast<From>(lowest), high = static_cast<From>(largest / 2 + 1) * 2;  // both exact
  using Step = std::conditional_t<(sizeof(To) < 4), int32_t, To>;
  const From inside = value > low && value < high ? value : From{0};
  To result = static_cast<To>(static_cast<Step>(inside));
  result = value >= high ? largest : result;
  return value <= low ? lowest : result;
}
}  // namespace detail

/// One value. Storage types are those of dtype_of<T>; bool is read as uint8_t by load().
template <class To, class From>
inline To convert(From value) {
  constexpr bool half_source = std::is_same_v<From, Float16> || std::is_same_v<From, BFloat16>;
  constexpr bool half_target = std::is_same_v<To, Float16> || std::is_same_v<To, BFloat16>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (half_source) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (half_target) {
    if constexpr (std::is_same_v<From, float>)
      return To(value);
    else
      return To(detail::round_to_odd(static_cast<double>(value)));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return detail::saturate<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

/// The general form of load(): `rows` rows of n elements, `row_stride` elements apart, one after the other into buffer.
template <class C>
void load_block(const void* src, DType dtype, int64_t rows, int64_t row_stride, int64_t n, int64_t stride, C* buffer);
/// The general form of store().
template <class C>
void store_block(void* dst, DType dtype, int64_t rows, int64_t row_stride, int64_t n, int64_t stride, const C* values);

/// Reads n elements of `dtype`, `stride` elements apart (0 repeats one), as C. Returns src itself when it is contiguous
/// and of type C already, else `buffer` (room for n), filled.
template <class C>
inline const C* load(const void* src, DType dtype, int64_t n, int64_t stride, C* buffer) {
  if (dtype == dtype_of<C> && stride == 1) return static_cast<const C*>(src);
  load_block(src, dtype, 1, 0, n, stride, buffer);
  return buffer;
}

/// Where to compute n results for store(): dst itself when it is contiguous and of type C, else `buffer`.
template <class C>
inline C* target(void* dst, DType dtype, int64_t stride, C* buffer) {
  return dtype == dtype_of<C> && stride == 1 ? static_cast<C*>(dst) : buffer;
}

/// Writes n values, `stride` elements apart, as `dtype`. Does nothing when `values` is dst itself (see target()).
template <class C>
inline void store(void* dst, DType dtype, int64_t n, int64_t stride, const C* values) {
  if (static_cast<const void*>(values) == dst) return;
  store_block(dst, dtype, 1, 0, n, stride, values);
}

/// Address of element `index` of an array of `dtype`.
inline void* element(void* base, DType dtype, int64_t index) {
  return static_cast<char*>(base) + index * static_cast<int64_t>(item_size(dtype));
}
inline const void* element(const void* base, DType dtype, int64_t index) {
  return static_cast<const char*>(base) + index * static_cast<int64_t>(item_size(dtype));
}

/// Calls f(C{}) with the type in which values of this dtype are computed: double, float (all other floats) or int64_t.
template <class F>
inline decltype(auto) with_compute_type(DType dtype, F&& f) {
  if (dtype == DType::float64) return std::forward<F>(f)(double{});
  if (is_floating_point(dtype)) return std::forward<F>(f)(float{});
  return std::forward<F>(f)(int64_t{});
}
/// The same without integers, for kernels that are registered for floats only.
template <class F>
inline decltype(auto) with_float_type(DType dtype, F&& f) {
  if (dtype == DType::float64) return std::forward<F>(f)(double{});
  return std::forward<F>(f)(float{});
}

}  // namespace anello::kernel
