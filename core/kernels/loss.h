// Parameters of cross-entropy from logits (or log-probabilities) to integer or probability targets.
// Main entry: CrossEntropyParams, CrossEntropyGradParams.
#pragma once

#include <anello/core/plugin.h>

namespace anello {

/// What the rows are compared with. The weight of class c in row i is q[i][c]:
///   labels:        q = (1 - smoothing) w[y] [c == y] + smoothing / classes w[c];  an ignored row has q = 0
///   probabilities: q = w[c] ((1 - smoothing) p[i][c] + smoothing / classes)
struct CrossEntropyTarget {
  const int64_t* labels;      ///< [rows], or null
  const void* probabilities;  ///< [rows, classes] of the key dtype, or null
  const void* class_weight;   ///< [classes] of accumulate_type, or null: 1
  int64_t ignore_index;
  double smoothing;
};

/// loss[i] = -sum_c q[i][c] logp[i][c] for x [rows, classes], contiguous, of the key dtype; logp is log_softmax(x) when
/// from_logits, else x itself. A class with q = 0 adds 0 even where x is infinite. Sums run in float32 or float64. A
/// label that is neither ignore_index nor in [0, classes) is an index_error that names label, row and range; nothing is
/// read by it.
struct CrossEntropyParams {
  const void* x;
  int64_t rows, classes;
  CrossEntropyTarget target;
  bool from_logits;
  void* row_stats;  ///< [rows, 2] of accumulate_type, written when from_logits: max x and log sum exp(x - max)
  void* loss;       ///< key dtype: [rows], or one value when reduced
  enum class Reduce : int32_t { none, sum, mean } reduce;
  /// Written, one value of accumulate_type: 1, or for mean the sum of w[y] over counted labels (rows for
  /// probabilities). Where it is 0, so is the loss.
  void* divisor;
};
inline constexpr KernelTag<CrossEntropyParams> kCrossEntropy{"cross_entropy"};
inline constexpr KernelTag<CrossEntropyParams> kNllLoss{"nll_loss"};  ///< the same kernel, so that errors name the loss

/// dx[i][c] = g[i] ([from_logits] exp(logp[i][c]) sum_c q[i][c] - q[i][c]), with g[i] = dloss / divisor (0 when
/// divisor is).
struct CrossEntropyGradParams {
  void* dx;
  const void* x;
  int64_t rows, classes;
  CrossEntropyTarget target;
  bool from_logits;
  const void* row_stats;
  const void* dloss;  ///< key dtype: [rows] when per_row, else one value
  bool per_row;
  const void* divisor;  ///< as written by the forward kernel
};
inline constexpr KernelTag<CrossEntropyGradParams> kCrossEntropyGrad{"cross_entropy_grad"};

}  // namespace anello
