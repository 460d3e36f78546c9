// Parameters of 2-d pooling, channels last.
// Main entry: kMaxPool2d, kMaxPool2dScatter, kMaxPool2dGather, kAvgPool2d, kAvgPool2dGrad.
#pragma once

#include <anello/core/plugin.h>

namespace anello {

/// Windows of kernel[0] x kernel[1] places of x [n, h, w, c], `stride` apart, the first `padding` before the image; the
/// result y is [n, out_h, out_w, c]. All contiguous. Places outside the image are left out; every window has at least
/// one inside.
struct PoolShape {
  int64_t n, h, w, c;
  int64_t out_h, out_w;
  int64_t kernel[2], stride[2], padding[2];
};

/// Pooling by maximum. `taps` (int32, the shape of y) holds the place in the window, row by row, that each result came
/// from.
struct MaxPoolParams {
  const void* in;
  void* out;
  int32_t* taps;
  DType dtype;
  PoolShape shape;
};
/// out = y from in = x: the first of equal values; NaN wins. Fills taps unless it is null.
inline constexpr KernelTag<MaxPoolParams> kMaxPool2d{"max_pool2d"};
/// out [n, h, w, c] = each in [n, out_h, out_w, c] added at the place its tap names, zero elsewhere: the gradient.
inline constexpr KernelTag<MaxPoolParams> kMaxPool2dScatter{"max_pool2d_scatter"};
/// out [n, out_h, out_w, c] = in [n, h, w, c] at the place each tap names: the gradient of the gradient.
inline constexpr KernelTag<MaxPoolParams> kMaxPool2dGather{"max_pool2d_gather"};

/// Pooling by mean. A window is divided by the number of its places inside the image, or with count_padding by those
/// inside the image or its padding.
struct AvgPoolParams {
  const void* in;
  void* out;
  DType dtype;
  PoolShape shape;
  bool count_padding;
};
/// out = y from in = x. 16-bit floats are added in float32.
inline constexpr KernelTag<AvgPoolParams> kAvgPool2d{"avg_pool2d"};
/// out = gradient of x from in = gradient of y.
inline constexpr KernelTag<AvgPoolParams> kAvgPool2dGrad{"avg_pool2d_grad"};

}  // namespace anello
