// Parameters of the matrix product and of column sums (the gradient of a bias row).
// Main entry: kMatmul with MatmulParams; kColumnSum with ColumnSumParams.
#pragma once

#include <anello/core/plugin.h>

namespace anello {

/// out[i] = op(a[i]) op(b[i]) + bias for i in [0, batch), all of one float dtype, which is the key dtype.
/// op(a) is m x k and op(b) is k x n; a matrix is row-major with `ld_*` elements from one row to the next, and *stored*
/// transposed (a as k x m, b as n x k) when trans_* says so. out is m x n and overlaps no input. Matrices of a batch
/// lie `step_*` elements apart (0 repeats one input; step_out is never 0). k may be 0: the product is then zero. 16-bit
/// floats are accumulated in float32; the sum with bias and with the old `out` is rounded once. The order of additions
/// depends on the sizes alone.
struct MatmulParams {
  const void *a, *b;
  const void* bias;  ///< [n] added to every row, or null
  void* out;
  DType dtype;
  int64_t m, n, k, batch;
  int64_t ld_a, ld_b, ld_out;
  int64_t step_a, step_b, step_out;
  bool trans_a, trans_b;
  bool accumulate;  ///< add to what is in out, else overwrite
};
inline constexpr KernelTag<MatmulParams> kMatmul{"matmul"};

/// out[j] (+)= sum over i of x[i][j]; x is rows x cols, contiguous, of the key dtype; out [cols] of the same.
struct ColumnSumParams {
  const void* x;
  void* out;
  DType dtype;
  int64_t rows, cols;
  bool accumulate;
};
inline constexpr KernelTag<ColumnSumParams> kColumnSum{"column_sum"};

}  // namespace anello
