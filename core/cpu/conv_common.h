// What the convolution kernels share: sizes in one place, and the depthwise forms that the general ones hand over to.
// Main entry: is_depthwise(), depthwise_gather(), depthwise_weight_grad().
#pragma once

#include <anello/core/cpu/gather_plan.h>

namespace anello::kernel {

/// One input and one output channel a group: nothing to sum over but taps, so the lanes hold channels.
inline bool is_depthwise(const ConvShape& s) { return s.groups > 1 && s.c == s.groups && s.o == s.groups; }

/// out[b, i, j, q] = bias[q] + sum over taps of x[b, height(i, r), width(j, s), q] weight[q, r, s] (bias may be null);
/// serves forward and the input's gradient, which differ in the maps only.
template <class A>
void depthwise_gather(const Context& ctx, const ConvParams& p, const AxisMap& height, const AxisMap& width);
/// out[q, r, s] (+)= sum over b, i, j of y[b, i, j, q] x[b, height(i, r), width(j, s), q]; y is p.weight.
template <class A>
void depthwise_weight_grad(const Context& ctx, const ConvParams& p);

}  // namespace anello::kernel
