// Parameters of reductions over the middle dim of a contiguous [outer, size, inner].
// Main entry: ReduceParams, ArgReduceParams.
#pragma once

#include <anello/core/plugin.h>

namespace anello {

/// out[o, i] = reduction over s of x[o, s, i]; all contiguous; out is [outer, inner]. The key dtype is that of x. Sums
/// of 16-bit floats and float32 run in float32 for a few tens of elements and in float64 from there on; integers wrap
/// in int64; the result is rounded once. The order of the additions depends on the sizes alone.
struct ReduceParams {
  const void* x;
  void* out;
  const void* mean;  ///< kCenteredSquares only: [outer, inner] of accumulate_type, subtracted first; null: 0
  DType dtype, out_dtype;
  int64_t outer, size, inner;
  double scale;  ///< kSum and kCenteredSquares: the result is multiplied by it before it is rounded (1: exact for
                 ///< integers)
};

inline constexpr KernelTag<ReduceParams> kSum{"sum"};
inline constexpr KernelTag<ReduceParams> kProd{"prod"};
inline constexpr KernelTag<ReduceParams> kCenteredSquares{"centered_squares"};  ///< floats only
inline constexpr KernelTag<ReduceParams> kMax{"max"};  ///< NaN if any is NaN; size must not be 0
inline constexpr KernelTag<ReduceParams> kMin{"min"};
inline constexpr KernelTag<ReduceParams> kAny{"any"};  ///< any element != 0; false for size 0
inline constexpr KernelTag<ReduceParams> kAll{"all"};

/// out[o, i] = the first s whose x[o, s, i] is the extreme; NaN counts as more extreme than any number. size must not
/// be 0.
struct ArgReduceParams {
  const void* x;
  int64_t* out;
  DType dtype;
  int64_t outer, size, inner;
};
inline constexpr KernelTag<ArgReduceParams> kArgMax{"argmax"};
inline constexpr KernelTag<ArgReduceParams> kArgMin{"argmin"};

}  // namespace anello
