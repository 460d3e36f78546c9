// Parameters of the fused optimizer kernels: one call updates a whole list of parameters in one pass over memory.
// Main entry: SgdParams, AdamParams, LerpParams, SumSquaresParams, ScaleParams; one KernelTag each.
#pragma once

#include <anello/core/plugin.h>

namespace anello {

/// One parameter of a list: contiguous arrays of `count` elements that do not overlap. State is of accumulate_type(the
/// parameter's dtype): float32 for 16-bit parameters, where a second moment would underflow.
struct OptimTensor {
  void* param;       ///< read and written; the key dtype
  const void* grad;  ///< read only; of the list's grad_dtype
  void* state[3];    ///< see the kernel; null where it keeps none
  int64_t count;
  int64_t step;  ///< number of this update, 1 for the parameter's first
};

/// Stochastic gradient descent with momentum as in Sutskever, Martens, Dahl, Hinton, ICML 2013, in the form that scales
/// the velocity by lr when it is applied:
///   g = (maximize ? -grad : grad) + weight_decay p
///   v = step == 1 ? g : momentum v + (1 - dampening) g     (only when momentum != 0)
///   p = p - lr (nesterov ? g + momentum v : v)
/// state[0] is v; on step 1 it may be uninitialised. Computed in accumulate_type of the key, rounded once.
struct SgdParams {
  const OptimTensor* tensors;
  int64_t tensor_count;
  DType grad_dtype;  ///< any float dtype
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize;
};
inline constexpr KernelTag<SgdParams> kSgd{"sgd"};

/// Adam (arXiv 1412.6980) and, with `decoupled`, AdamW (arXiv 1711.05101), bias-corrected:
///   g = maximize ? -grad : grad;  decoupled ? p = (1 - lr weight_decay) p : g = g + weight_decay p
///   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  amsgrad: u = max(u, v), else u = v
///   p = p - lr / (1 - beta1^step) m / (sqrt(u / (1 - beta2^step)) + eps)
/// state[0..1] are m and v, state[2] is u (null unless amsgrad); all zero before step 1.
struct AdamParams {
  const OptimTensor* tensors;
  int64_t tensor_count;
  DType grad_dtype;  ///< any float dtype
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled, amsgrad, maximize;
};
inline constexpr KernelTag<AdamParams> kAdam{"adam"};

/// Weight averaging: param = param + weight (grad - param), `grad` being the source's values; exact at weight 0 and 1.
/// Uses no state.
struct LerpParams {
  const OptimTensor* tensors;
  int64_t tensor_count;
  DType source_dtype;  ///< any float dtype
  double weight;
};
inline constexpr KernelTag<LerpParams> kLerp{"lerp"};

/// out[i] = sum of the squares of tensors[i].grad, in float64; the key dtype is that of the values. Uses neither param
/// nor state. The order of the additions depends on the tensor's count alone.
struct SumSquaresParams {
  const OptimTensor* tensors;
  int64_t tensor_count;
  double* out;  ///< [tensor_count]
};
inline constexpr KernelTag<SumSquaresParams> kSumSquares{"sum_squares"};

/// param = factor param, in place (clipping works on gradients: hand them over as `param`). Uses neither grad nor
/// state.
struct ScaleParams {
  const OptimTensor* tensors;
  int64_t tensor_count;
  double factor;
};
inline constexpr KernelTag<ScaleParams> kScale{"scale"};

}  // namespace anello
