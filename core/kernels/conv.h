// Parameters of 2-d convolution and of its two adjoints, channels last.
// Main entry: kConv2d, kConv2dInputGrad, kConv2dWeightGrad.
#pragma once

#include <anello/core/plugin.h>

namespace anello {

/// Sizes of a convolution. x is [n, h, w, c], weight [o, kh, kw, c / groups], the result y [n, out_h, out_w, o], all
/// contiguous; [0] is height, [1] width. Any size may be 0 except strides, dilations, groups, kh and kw.
/// y[b, i, j, q] = sum over r, s, p of weight[q, r, s, p] x[b, i stride - padding + r dilation, ..., group(q) c/groups
/// + p], where x counts as 0 outside its bounds.
struct ConvShape {
  int64_t n, h, w, c;
  int64_t out_h, out_w, o;
  int64_t kh, kw;
  int64_t stride[2], padding[2], dilation[2];
  int64_t groups;
};

/// One of the three products; each tag says which pointers it reads. All of the key dtype; 16-bit floats accumulate in
/// float32 and round once. The order of additions depends on the sizes alone. `out` overlaps no input.
struct ConvParams {
  const void* x;       ///< [n, h, w, c], or [n, out_h, out_w, o] gradients of y where a tag says so
  const void* weight;  ///< [o, kh, kw, c / groups], or gradients of y
  const void* bias;    ///< [o] or null; forward only
  void* out;
  DType dtype;
  ConvShape shape;
  bool accumulate;  ///< add to what is in out, else overwrite; weight gradient only
};

/// y from x, weight and bias.
inline constexpr KernelTag<ConvParams> kConv2d{"conv2d"};
/// Gradient of x [n, h, w, c] from the gradient of y (in `x`) and weight.
inline constexpr KernelTag<ConvParams> kConv2dInputGrad{"conv2d_input_grad"};
/// Gradient of weight from x and the gradient of y (in `weight`).
inline constexpr KernelTag<ConvParams> kConv2dWeightGrad{"conv2d_weight_grad"};

}  // namespace anello
