// Parameters of the reduction over several arrays of the same length, which is what ranks do with one another's values.
// Main entry: CombineParams, kCombine.
#pragma once

#include <anello/core/plugin.h>

namespace anello {

enum class CombineOp : uint8_t { sum, min, max, product };

/// Every destinations[d][i] = op over s, in order, of (prescale * sources[s][i]), then * postscale / divisor, rounded
/// once. Computed in float32 for 16-bit floats, else in the dtype itself; integers wrap; NaN wins min and max. Scales
/// and divisor are for floats only. Contiguous arrays; a destination may be a source, but none overlaps another
/// otherwise. Runs on the calling thread.
struct CombineParams {
  void* const* destinations;
  const void* const* sources;
  int64_t destination_count, source_count;  ///< at least 1
  int64_t n;
  double prescale, postscale;
  int32_t divisor;
  CombineOp op;
};
inline constexpr KernelTag<CombineParams> kCombine{"combine"};

}  // namespace anello
