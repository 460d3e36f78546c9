// Parameters of softmax and log_softmax over the middle dim of a contiguous [outer, size, inner].
// Main entry: SoftmaxParams, SoftmaxGradParams.
#pragma once

#include <anello/core/plugin.h>

namespace anello {

/// softmax: y = exp(x - max) / sum exp(x - max); log_softmax: y = (x - max) - log sum exp(x - max); along `size`. A
/// line of all -inf, or with NaN, gives NaN. Key: the dtype of x and y; computed in accumulate_type, rounded once.
struct SoftmaxParams {
  void* y;
  const void* x;
  int64_t outer, size, inner;
};
inline constexpr KernelTag<SoftmaxParams> kSoftmax{"softmax"};
inline constexpr KernelTag<SoftmaxParams> kLogSoftmax{"log_softmax"};

/// softmax: dx = y (dy - sum dy y); log_softmax: dx = dy - exp(y) sum dy.
struct SoftmaxGradParams {
  void* dx;
  const void *dy, *y;
  int64_t outer, size, inner;
};
inline constexpr KernelTag<SoftmaxGradParams> kSoftmaxGrad{"softmax_grad"};
inline constexpr KernelTag<SoftmaxGradParams> kLogSoftmaxGrad{"log_softmax_grad"};

}  // namespace anello
