// Limits on gradients, between backward() and step().
// Main entry: clip_grad_norm_(), clip_grad_value_().
#pragma once

#include <anello/core/tensor.h>

#include <vector>

namespace anello::optim {

/// Scales all gradients together, in place, so that their joint Euclidean norm is at most max_norm (up to 1e-6 in the
/// divisor, as in PyTorch); smaller ones stay as they are. Returns the norm before. Parameters without a gradient are
/// passed over. A norm that is NaN or infinite raises Error, with the gradients unchanged, when error_if_nonfinite;
/// else it goes into every gradient. Raises ValueError unless max_norm is at least 0.
double clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, bool error_if_nonfinite = false);
/// Limits every element of every gradient to [-clip_value, clip_value], in place; NaN stays.
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

}  // namespace anello::optim
