// Parameters of the kernels that move elements by integer indices.
// Main entry: GatherParams, ScatterAddParams, OneHotParams; one KernelTag each.
#pragma once

#include <anello/core/plugin.h>
#include <anello/core/shape.h>

namespace anello {

/// out[i0 .. ij .. in] = x[i0 .. index[i0 .. ij .. in] .. in] with the index standing in for dim j. `sizes` are those
/// of out, which is contiguous; x and index have strides in elements (index: 0 where it is broadcast). Outside dim,
/// sizes are no larger than x's. Negative indices count from the end when `wrap`. An index outside is an index_error,
/// and nothing is read by it. Key: the dtype of x and out (values are moved, not computed on).
struct GatherParams {
  void* out;
  const void* x;
  const int64_t* index;
  int64_t sizes[kMaxDims], x_strides[kMaxDims], index_strides[kMaxDims];
  int dims, dim;
  int64_t dim_size;  ///< size of x along dim
  bool wrap;
};
inline constexpr KernelTag<GatherParams> kGather{"gather"};

/// out = 0, then out[i0 .. index[i0 .. in] .. in] += src[i0 .. ij .. in] for every element of src in row-major order.
/// `sizes` are those of src; out is contiguous, of the same sizes but dim_size along dim. Accumulates in
/// accumulate_type (integers: in their own dtype) and rounds once. An index outside is an index_error. Key: the dtype
/// of src and out.
struct ScatterAddParams {
  void* out;
  const void* src;
  const int64_t* index;
  int64_t sizes[kMaxDims], src_strides[kMaxDims], index_strides[kMaxDims];
  int dims, dim;
  int64_t dim_size;  ///< size of out along dim
  bool wrap;
};
inline constexpr KernelTag<ScatterAddParams> kScatterAdd{"scatter_add"};

/// out [count, classes] = 1 where the column is the row's label, else 0; a label outside [0, classes) is an
/// index_error. Key: the dtype of out.
struct OneHotParams {
  void* out;
  const int64_t* labels;
  int64_t count, classes;
};
inline constexpr KernelTag<OneHotParams> kOneHot{"one_hot"};

}  // namespace anello
