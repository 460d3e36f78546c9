// Parameters of elementwise kernels: N-dimensional strided operands, broadcast by stride 0.
// Main entry: UnaryParams, BinaryParams, WhereParams; one KernelTag an operation.
#pragma once

#include <anello/core/plugin.h>
#include <anello/core/shape.h>

namespace anello {

/// An operand seen through the output's shape: strides in elements, 0 where it is broadcast.
struct Operand {
  void* data;
  DType dtype;
  int64_t strides[kMaxDims];
};

/// out[i] = f(x[i]; alpha, beta). Computed in accumulate_type of the key dtype (that of `x`; see each tag); loads and
/// stores convert. Sizes are of the output; the kernel merges dims itself.
struct UnaryParams {
  Operand out, x;
  int64_t sizes[kMaxDims];
  int dims;
  double alpha, beta;  ///< the functor's parameters (slope, bounds, exponent, ...)
};

/// out[i] = f(a[i], b[i]); a and b have the key dtype, out too, or bool for comparisons.
struct BinaryParams {
  Operand out, a, b;
  int64_t sizes[kMaxDims];
  int dims;
  double alpha, beta;
};

/// dx[i] = dy[i] * f'(x[i], y[i]); all of one dtype. The key dtype is that of dy.
struct UnaryGradParams {
  Operand dx, dy, x, y;
  int64_t sizes[kMaxDims];
  int dims;
  double alpha, beta;
};

/// out[i] = condition[i] ? a[i] : b[i]; condition is bool; a, b, out have the key dtype.
struct WhereParams {
  Operand out, condition, a, b;
  int64_t sizes[kMaxDims];
  int dims;
};

/// out[i] = value; the key dtype is that of out.
struct FillParams {
  Operand out;
  int64_t sizes[kMaxDims];
  int dims;
  double value;
  int64_t int_value;  ///< used when out is an integer or bool
};

/// out[i] = start + i * step, out contiguous, i over [0, count). Key dtype that of out.
struct ArangeParams {
  void* out;
  int64_t count;
  DType dtype;
  double start, step;
  int64_t int_start, int_step;
};

/// Copy with conversion between any two dtypes (key dtype: the source's). float to integer truncates toward zero and
/// saturates (NaN gives 0); anything to bool is != 0; integer to narrower integer wraps.
inline constexpr KernelTag<UnaryParams> kCopy{"copy"};
inline constexpr KernelTag<FillParams> kFill{"fill"};
inline constexpr KernelTag<ArangeParams> kArange{"arange"};
inline constexpr KernelTag<WhereParams> kWhere{"where"};

// Binary arithmetic: key dtype and result dtype are the promoted dtype.
inline constexpr KernelTag<BinaryParams> kAdd{"add"};  ///< a + alpha * b
inline constexpr KernelTag<BinaryParams> kMul{"mul"};
inline constexpr KernelTag<BinaryParams> kDiv{"div"};  ///< floats only (integers are promoted to float32 before)
inline constexpr KernelTag<BinaryParams> kFloorDivide{
    "floor_divide"};  ///< rounds toward -inf; integer by 0 is a value_error
inline constexpr KernelTag<BinaryParams> kRemainder{"remainder"};  ///< sign of the divisor, as Python's %
inline constexpr KernelTag<BinaryParams> kPow{"pow"};              ///< integers: negative exponent is a value_error
inline constexpr KernelTag<BinaryParams> kMaximum{"maximum"};      ///< NaN if either is NaN
inline constexpr KernelTag<BinaryParams> kMinimum{"minimum"};
// Comparisons and logic: out is bool.
inline constexpr KernelTag<BinaryParams> kEq{"eq"};
inline constexpr KernelTag<BinaryParams> kNe{"ne"};
inline constexpr KernelTag<BinaryParams> kLt{"lt"};
inline constexpr KernelTag<BinaryParams> kLe{"le"};
inline constexpr KernelTag<BinaryParams> kGt{"gt"};
inline constexpr KernelTag<BinaryParams> kGe{"ge"};
inline constexpr KernelTag<BinaryParams> kLogicalAnd{"logical_and"};
inline constexpr KernelTag<BinaryParams> kLogicalOr{"logical_or"};
inline constexpr KernelTag<BinaryParams> kLogicalXor{"logical_xor"};
inline constexpr KernelTag<UnaryParams> kLogicalNot{"logical_not"};  ///< out is bool
inline constexpr KernelTag<UnaryParams> kIsNan{"isnan"};             ///< out is bool

}  // namespace anello
