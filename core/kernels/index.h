// Parameters of the kernels that move elements by integer indices.
// Main entry: GatherParams, ScatterAddParams, OneHotParams; one KernelTag an operation.
#pragma once

#include <anello/core/plugin.h>

namespace anello {

/// An index seen as [outer, size, inner], with strides in elements: 0 where it is broadcast. Negative values count from
/// the end when `wrap`. A value outside [0, dim_size) is an index_error that names it; nothing is read or written by
/// it.
struct IndexOperand {
  const int64_t* data;
  int64_t outer_stride, stride, inner_stride;
  bool wrap;
};

/// out[o][k][i] = x[o][index[o][k][i]][i] for out [outer, size, inner] and x [outer, dim_size, inner], both contiguous.
/// Key: the dtype of x and out (values are moved, not computed on).
struct GatherParams {
  void* out;
  const void* x;
  IndexOperand index;
  int64_t outer, size, inner, dim_size;
};
inline constexpr KernelTag<GatherParams> kGather{"gather"};
inline constexpr KernelTag<GatherParams> kIndexSelect{"index_select"};

/// out = 0, then out[o][index[o][k][i]][i] += src[o][k][i] in the order of k, for src [outer, size, inner] and out
/// [outer, dim_size, inner], both contiguous. 16-bit floats accumulate in float32 and round once; all others in their
/// own dtype. Key: the dtype of src and out.
struct ScatterAddParams {
  void* out;
  const void* src;
  IndexOperand index;
  int64_t outer, size, inner, dim_size;
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
