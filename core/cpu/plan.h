// The common iteration space of strided operands: dims merged where all operands allow it.
// Main entry: make_plan(), RowCursor.
#pragma once

#include <anello/core/kernels/elementwise.h>

#include <algorithm>
#include <cstdint>

namespace anello::kernel {

inline constexpr int kMaxInputs = 3;
inline constexpr int kMaxOperands = kMaxInputs + 1;  // the output is operand 0

/// The merged space: its last dim is `inner`, all before it are rows. Dims are ordered by descending output stride.
struct Plan {
  int dims = 0, count = 0;
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxOperands][kMaxDims];
  char* data[kMaxOperands];
  DType dtype[kMaxOperands];
  bool constant[kMaxOperands];    // the same element everywhere
  bool same_rows[kMaxOperands];   // every row is the same
  bool contiguous[kMaxOperands];  // all rows one after the other
  int64_t inner = 1, rows = 1;
};

/// Merges the dims of `count` operands; the first is the output. No size may be 0.
Plan make_plan(const int64_t* sizes, int dims, const Operand* const* operands, int count);

/// Offsets in elements of a row in every operand.
struct RowCursor {
  const Plan& plan;
  int64_t index[kMaxDims];
  int64_t offset[kMaxOperands] = {};

  RowCursor(const Plan& p, int64_t row) : plan(p) {
    for (int d = plan.dims - 2; d >= 0; --d) {
      index[d] = row % plan.sizes[d];
      row /= plan.sizes[d];
      for (int k = 0; k < plan.count; ++k) offset[k] += index[d] * plan.strides[k][d];
    }
  }
  /// Rows from here on that lie a constant stride apart, at most `limit`.
  int64_t run(int64_t limit) const {
    return plan.dims < 2 ? 1 : std::min(limit, plan.sizes[plan.dims - 2] - index[plan.dims - 2]);
  }
  int64_t row_stride(int k) const { return plan.dims < 2 ? 0 : plan.strides[k][plan.dims - 2]; }
  /// Moves on by `rows`, which must not exceed run().
  void advance(int64_t rows) {
    for (int d = plan.dims - 2; d >= 0; --d) {
      index[d] += rows;
      for (int k = 0; k < plan.count; ++k) offset[k] += rows * plan.strides[k][d];
      if (index[d] < plan.sizes[d]) return;
      for (int k = 0; k < plan.count; ++k) offset[k] -= plan.sizes[d] * plan.strides[k][d];
      index[d] = 0;
      rows = 1;
    }
  }
};

}  // namespace anello::kernel
