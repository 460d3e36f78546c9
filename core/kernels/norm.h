// Parameters of batch normalisation over the last dim: forward and backward.
// Main entry: BatchNormParams, BatchNormGradParams.
#pragma once

#include <anello/core/plugin.h>

namespace anello {

/// y = (x - mean) rstd weight + bias for x, y [rows, channels], contiguous; arXiv 1502.03167. Key: the dtype of x and
/// y. Statistics and parameters are of accumulate_type of it, [channels], contiguous.
struct BatchNormParams {
  void* y;
  const void* x;
  int64_t rows, channels;
  const void *weight, *bias;         ///< null: 1 and 0
  void *mean, *rstd;                 ///< written: the statistics used; rstd = 1 / sqrt(var + eps)
  void *running_mean, *running_var;  ///< evaluation reads them; training updates them (null: none)
  bool training;                     ///< statistics of this batch; needs rows > 1
  double momentum, eps;              ///< running = (1 - momentum) running + momentum batch (unbiased variance)
};
inline constexpr KernelTag<BatchNormParams> kBatchNorm{"batch_norm"};

/// dbias = sum dy, dweight = sum dy xhat, dx = weight rstd (dy - [training] (dbias + xhat dweight) / rows), where
/// xhat = (x - mean) rstd. Layouts and dtypes as above, dy and dx like x.
struct BatchNormGradParams {
  void* dx;  ///< null: not wanted
  const void *dy, *x;
  int64_t rows, channels;
  const void *weight, *mean, *rstd;  ///< weight null: 1
  void *dweight, *dbias;             ///< null: not wanted
  bool training;
};
inline constexpr KernelTag<BatchNormGradParams> kBatchNormGrad{"batch_norm_grad"};

}  // namespace anello
