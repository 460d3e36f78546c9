// Parameters of elementwise kernels: N-dimensional strided operands, broadcast by stride 0.
// Main entry: UnaryParams, BinaryParams, WhereParams; tags in unary_ops.h and binary_ops.h.
#pragma once

#include <anello/core/plugin.h>
#include <anello/core/shape.h>

namespace anello {

/// An operand seen through the output's shape: strides in elements, 0 where it is broadcast. Kernels compute in the
/// accumulate_type of their key dtype, whatever the operands' own dtypes: each is converted when loaded or stored.
struct Operand {
  void* data;  ///< null (inputs of BinaryParams only): the number in `scalar` / `int_scalar`
  DType dtype;
  int64_t strides[kMaxDims];
};

/// out[i] = f(x[i]; alpha, beta). The key dtype is that of x. Sizes are of the output; the kernel merges dims itself.
/// out may be x itself, not overlap it otherwise; the same holds for the structs below.
struct UnaryParams {
  Operand out, x;
  int64_t sizes[kMaxDims];
  int dims;
  double alpha, beta;  ///< the functor's parameters (slope, bounds, exponent, ...)
};

/// out[i] = f(a[i], b[i]; alpha). The key dtype is the promoted one.
struct BinaryParams {
  Operand out, a, b;
  int64_t sizes[kMaxDims];
  int dims;
  DType dtype;  ///< the key dtype
  double alpha;
  double scalar;       ///< the operand without data, when computing in floats
  int64_t int_scalar;  ///< ... and when computing in integers
};

/// dx[i] = dy[i] * f'(...), with x or y in `saved` as the functor's kSaves says. The key dtype is that of dy.
struct UnaryGradParams {
  Operand dx, dy, saved;
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

// Further tags: unary_ops.h and binary_ops.h.
inline constexpr KernelTag<UnaryParams> kLogicalNot{"logical_not"};  ///< out is bool
inline constexpr KernelTag<UnaryParams> kIsNan{"isnan"};             ///< out is bool

}  // namespace anello
