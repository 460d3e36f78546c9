// Element types: their names, sizes, promotion rules, and the two 16-bit float storage types.
// Main entry: DType, promote_types(), dtype_of<T>.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <type_traits>

namespace anello {

enum class DType : uint8_t { bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64 };
inline constexpr int kDTypeCount = 10;

inline constexpr DType bool_ = DType::bool_, uint8 = DType::uint8, int8 = DType::int8, int16 = DType::int16,
                       int32 = DType::int32, int64 = DType::int64, float16 = DType::float16, bfloat16 = DType::bfloat16,
                       float32 = DType::float32, float64 = DType::float64;

/// Brain float: the upper half of a float32 (8 exponent bits, 7 mantissa bits). Storage only: convert to compute.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN.
  explicit constexpr BFloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? ((u >> 16) | 0x40u) : rounded);
  }
  explicit constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

/// IEEE 754 binary16. Storage only: convert to compute.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  /// Rounds to nearest, ties to even; overflow gives infinity; NaN stays NaN.
  explicit Float16(float value);
  explicit operator float() const;
};

constexpr size_t item_size(DType dtype) {
  constexpr uint8_t sizes[kDTypeCount] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  return sizes[static_cast<int>(dtype)];
}
constexpr bool is_floating_point(DType dtype) { return dtype >= DType::float16; }
constexpr bool is_integral(DType dtype) { return dtype >= DType::uint8 && dtype <= DType::int64; }

/// "float32", "bool", ...
std::string_view name(DType dtype);
/// The dtype of this name; raises DTypeError naming the nearest valid one.
DType dtype_from_name(std::string_view name);
std::ostream& operator<<(std::ostream& out, DType dtype);

/// The dtype of an operation on a and b: any float beats any integer, any integer beats bool, wider beats narrower,
/// float16 with bfloat16 is float32, uint8 with a signed type is the next wider signed one.
DType promote_types(DType a, DType b);
/// The dtype in which values of this dtype are accumulated: float32 for 16-bit floats, int64 for integers and bool.
constexpr DType accumulate_type(DType dtype) {
  if (dtype == DType::float64 || dtype == DType::float32) return dtype;
  return is_floating_point(dtype) ? DType::float32 : DType::int64;
}

namespace detail {
template <class T>
constexpr DType dtype_of_impl() {
  if constexpr (std::is_same_v<T, bool>)
    return DType::bool_;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DType::uint8;
  else if constexpr (std::is_same_v<T, int8_t>)
    return DType::int8;
  else if constexpr (std::is_same_v<T, int16_t>)
    return DType::int16;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::int32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::int64;
  else if constexpr (std::is_same_v<T, Float16>)
    return DType::float16;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::bfloat16;
  else if constexpr (std::is_same_v<T, float>)
    return DType::float32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::float64;
  else
    static_assert(sizeof(T) == 0, "no DType for this C++ type");
}
}  // namespace detail
/// The DType that stores a C++ type.
template <class T>
inline constexpr DType dtype_of = detail::dtype_of_impl<T>();

inline Float16::Float16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    bits = static_cast<uint16_t>(sign | 0x7e00u);
  } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
    bits = static_cast<uint16_t>(sign | 0x7c00u);
  } else if (magnitude < 0x38800000u) {  // subnormal or zero: let the float adder round at the right place
    const float scaled = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x3f000000u));
  } else {
    bits = static_cast<uint16_t>(sign | ((magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13));
  }
}

inline Float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu,
                 mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide = exponent == 31 ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

}  // namespace anello
