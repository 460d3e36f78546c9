// Convolution and its two adjoints, each differentiable in both operands by way of the others.
// Main entry: conv2d(), conv2d_input_grad(), conv2d_weight_grad() of autograd/functions.h.
#include <anello/autograd/functions.h>
#include <anello/autograd/functions/product.h>
#include <anello/autograd/node.h>
#include <anello/core/kernels/conv.h>
#include <anello/core/registry.h>

namespace anello {
namespace {

struct Options {
  Pair stride, padding, dilation;
  int64_t groups;
};

int64_t output_size(int64_t input, int64_t kernel, const Options& o, size_t axis) {
  return (input + 2 * o.padding[axis] - o.dilation[axis] * (kernel - 1) - 1) / o.stride[axis] + 1;
}

/// Options stay so small that no sum or product of them with a size that memory can hold overflows.
void check_range(const char* op, const char* name, int64_t value, int64_t least) {
  check<ValueError>(value >= least, op, name, " is ", value, ", at least ", least, " is needed.");
  check<ValueError>(value <= INT32_MAX, op, name, " is ", value, ", at most ", INT32_MAX, " is possible.");
}

/// Checks everything about the sizes; x and weight as in conv2d.
ConvShape conv_shape(const char* op, const Shape& x, const Shape& weight, const Options& o) {
  check<ShapeError>(x.size() == 4, op, "the input has shape ", x,
                    ", not [N, H, W, C]. Hint: images are channels last.");
  check<ShapeError>(weight.size() == 4, op, "the weight has shape ", weight,
                    ", not [out, kh, kw, in / groups]. Hint: weights are channels last.");
  check<ValueError>(o.groups >= 1, op, "groups is ", o.groups, ", at least 1 is needed.");
  for (size_t i = 0; i < 2; ++i) {
    check_range(op, "stride", o.stride[i], 1);
    check_range(op, "dilation", o.dilation[i], 1);
    check_range(op, "padding", o.padding[i], 0);
  }
  const int64_t channels = x[3], outputs = weight[0];
  check<ShapeError>(channels % o.groups == 0 && outputs % o.groups == 0, op, channels, " input and ", outputs,
                    " output channels cannot be split into ", o.groups, " groups.");
  check<ShapeError>(weight[3] == channels / o.groups, op, "the input ", x, " has ", channels / o.groups,
                    " channels in each of ", o.groups, " groups, the weight ", weight, " takes ", weight[3],
                    ". Hint: input [N, H, W, C], weight [out, kh, kw, C / groups].");
  for (int i = 0; i < 2; ++i) {
    const auto axis = static_cast<size_t>(i);
    const int64_t kernel = weight[1 + i], padded = x[1 + i] + 2 * o.padding[axis];
    check<ShapeError>(kernel >= 1, op, "the weight ", weight, " has an empty kernel.");
    check_range(op, "the kernel's size", kernel, 1);
    const int64_t extent = o.dilation[axis] * (kernel - 1) + 1;
    check<ShapeError>(extent <= padded, op, "a kernel of ", extent, i == 0 ? " rows" : " columns",
                      " is larger than the padded input of ", padded, " (input ", x, ", weight ", weight,
                      "). Hint: use more padding or a smaller kernel.");
  }
  return {x[0],
          x[1],
          x[2],
          channels,
          output_size(x[1], weight[1], o, 0),
          output_size(x[2], weight[2], o, 1),
          outputs,
          weight[1],
          weight[2],
          {o.stride[0], o.stride[1]},
          {o.padding[0], o.padding[1]},
          {o.dilation[0], o.dilation[1]},
          o.groups};
}

void check_grad(const char* op, const Tensor& grad, const ConvShape& s) {
  const Shape expected{s.n, s.out_h, s.out_w, s.o};
  check<ShapeError>(grad.shape() == expected, op, "the gradient has shape ", grad.shape(),
                    ", the convolution's result ", expected, ".");
}

/// d(weight) from the gradient of y and x into `out`.
void run_weight_grad(const Tensor& grad, const Tensor& x, const ConvShape& s, const Tensor& out, bool accumulate) {
  const Tensor dy = contiguous_data(grad), source = contiguous_data(x);
  launch<kConv2dWeightGrad>(x.device(), x.dtype(),
                            {source.raw_data(), dy.raw_data(), nullptr, out.raw_data(), x.dtype(), s, accumulate});
}

// The three on operands of one dtype.
Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Options& o);
Tensor input_grad(const Tensor& grad, const Tensor& weight, const Shape& input_shape, const Options& o);
Tensor weight_grad(const Tensor& grad, const Tensor& x, const Shape& weight_shape, const Options& o);

Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Options& o) {
  const ConvShape s = conv_shape("conv2d", x.shape(), weight.shape(), o);
  const Tensor source = contiguous_data(x), filters = contiguous_data(weight);
  const Tensor offsets = bias.defined() ? contiguous_data(bias) : bias;
  const Tensor y = empty({s.n, s.out_h, s.out_w, s.o}, x.dtype(), x.device());
  launch<kConv2d>(x.device(), x.dtype(),
                  {source.raw_data(), filters.raw_data(), bias.defined() ? offsets.raw_data() : nullptr, y.raw_data(),
                   x.dtype(), s, false});
  // Each gradient needs the other operand only.
  const Tensor none, &kept_x = weight.requires_grad() ? x : none, &kept_weight = x.requires_grad() ? weight : none;
  return record("conv2d", {&x, &weight, &bias}, {&kept_x, &kept_weight}, y, [o, s](Backward& bw) {
    const Tensor& dy = bw.grad();
    if (bw.needs(0)) bw.give(0, input_grad(dy, bw.saved(1), bw.input_shape(0), o));
    if (bw.needs(1)) {
      if (const Destination to = bw.destination(1); to.tensor.defined()) {
        run_weight_grad(dy, bw.saved(0), s, to.tensor, to.accumulate);
        bw.wrote(1);
      } else {
        bw.give(1, weight_grad(dy, bw.saved(0), bw.input_shape(1), o));
      }
    }
    if (bw.needs(2)) detail::give_bias(bw, 2, dy);
  });
}

Tensor input_grad(const Tensor& grad, const Tensor& weight, const Shape& input_shape, const Options& o) {
  const ConvShape s = conv_shape("conv2d_input_grad", input_shape, weight.shape(), o);
  check_grad("conv2d_input_grad", grad, s);
  const Tensor dy = contiguous_data(grad), filters = contiguous_data(weight);
  const Tensor dx = empty(input_shape, grad.dtype(), grad.device());
  launch<kConv2dInputGrad>(grad.device(), grad.dtype(),
                           {dy.raw_data(), filters.raw_data(), nullptr, dx.raw_data(), grad.dtype(), s, false});
  return record("conv2d_input_grad", {&grad, &weight}, {&grad, &weight}, dx, [o](Backward& bw) {
    if (bw.needs(0)) bw.give(0, forward(bw.grad(), bw.saved(1), {}, o));
    if (bw.needs(1)) bw.give(1, weight_grad(bw.saved(0), bw.grad(), bw.input_shape(1), o));
  });
}

Tensor weight_grad(const Tensor& grad, const Tensor& x, const Shape& weight_shape, const Options& o) {
  const ConvShape s = conv_shape("conv2d_weight_grad", x.shape(), weight_shape, o);
  check_grad("conv2d_weight_grad", grad, s);
  const Tensor dw = empty(weight_shape, x.dtype(), x.device());
  run_weight_grad(grad, x, s, dw, false);
  return record("conv2d_weight_grad", {&grad, &x}, {&grad, &x}, dw, [o](Backward& bw) {
    if (bw.needs(0)) bw.give(0, forward(bw.saved(1), bw.grad(), {}, o));
    if (bw.needs(1)) bw.give(1, input_grad(bw.saved(0), bw.grad(), bw.input_shape(1), o));
  });
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride, Pair padding, Pair dilation,
              int64_t groups) {
  const DType dtype = detail::product_dtype("conv2d", x, weight, bias);
  if (bias.defined())
    check<ShapeError>(weight.dim() != 4 || bias.shape() == Shape{weight.shape()[0]}, "conv2d", "the bias has shape ",
                      bias.shape(), ", the weight ", weight.shape(), " has ", weight.shape()[0], " output channels.");
  return forward(cast(x, dtype), cast(weight, dtype), bias.defined() ? cast(bias, dtype) : bias,
                 {stride, padding, dilation, groups});
}

Tensor conv2d_input_grad(const Tensor& grad, const Tensor& weight, const Shape& input_shape, Pair stride, Pair padding,
                         Pair dilation, int64_t groups) {
  const DType dtype = detail::product_dtype("conv2d_input_grad", grad, weight);
  return input_grad(cast(grad, dtype), cast(weight, dtype), input_shape, {stride, padding, dilation, groups});
}

Tensor conv2d_weight_grad(const Tensor& grad, const Tensor& x, const Shape& weight_shape, Pair stride, Pair padding,
                          Pair dilation, int64_t groups) {
  const DType dtype = detail::product_dtype("conv2d_weight_grad", grad, x);
  return weight_grad(cast(grad, dtype), cast(x, dtype), weight_shape, {stride, padding, dilation, groups});
}

}  // namespace anello
