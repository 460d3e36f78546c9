// Pooling: by maximum, whose gradient goes where the maximum came from, and by mean.
// Main entry: max_pool2d(), max_pool1d(), avg_pool2d(), global_avg_pool2d() of autograd/functions.h.
#include <anello/autograd/functions.h>
#include <anello/autograd/node.h>
#include <anello/core/kernels/pool.h>
#include <anello/core/registry.h>

namespace anello {
namespace {

int64_t output_size(int64_t input, int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode) {
  const int64_t room = input + 2 * padding - kernel;
  const int64_t size = (ceil_mode ? room + stride - 1 : room) / stride + 1;
  // With ceil_mode the last window must start inside the image or the padding before it, not in the padding behind it.
  return ceil_mode && (size - 1) * stride >= input + padding ? size - 1 : size;
}

PoolShape pool_shape(const char* op, const Tensor& x, Pair kernel, Pair stride, Pair padding, bool ceil_mode) {
  check<ShapeError>(x.dim() == 4, op, "the input has shape ", x.shape(),
                    ", not [N, H, W, C]. Hint: images are channels last.");
  for (size_t i = 0; i < 2; ++i) {
    check<ValueError>(kernel[i] >= 1, op, "kernel is ", kernel[i], ", at least 1 is needed.");
    if (stride[i] == 0) stride[i] = kernel[i];
    check<ValueError>(stride[i] >= 1, op, "stride is ", stride[i],
                      ", at least 1 is needed (0 means the kernel's size).");
    check<ValueError>(kernel[i] <= INT32_MAX && stride[i] <= INT32_MAX, op, "kernel ", kernel[i], " and stride ",
                      stride[i], ": at most ", INT32_MAX, " is possible.");
    check<ValueError>(padding[i] >= 0 && padding[i] <= kernel[i] / 2, op, "padding is ", padding[i],
                      ", more than half of kernel ", kernel[i], ". Hint: use pad() before pooling.");
    const int64_t padded = x.shape()[static_cast<int>(i) + 1] + 2 * padding[i];
    check<ShapeError>(kernel[i] <= padded, op, "a kernel of ", kernel[i], i == 0 ? " rows" : " columns",
                      " is larger than the padded input of ", padded, " (input ", x.shape(),
                      "). Hint: use a smaller kernel.");
  }
  const Shape& s = x.shape();
  return {s[0],
          s[1],
          s[2],
          s[3],
          output_size(s[1], kernel[0], stride[0], padding[0], ceil_mode),
          output_size(s[2], kernel[1], stride[1], padding[1], ceil_mode),
          {kernel[0], kernel[1]},
          {stride[0], stride[1]},
          {padding[0], padding[1]}};
}

Shape input_shape(const PoolShape& s) { return {s.n, s.h, s.w, s.c}; }
Shape output_shape(const PoolShape& s) { return {s.n, s.out_h, s.out_w, s.c}; }

Tensor max_pool_gather(const Tensor& x, const Tensor& taps, const PoolShape& s);

/// grad [n, out_h, out_w, c] back at the places that taps name.
Tensor max_pool_scatter(const Tensor& grad, const Tensor& taps, const PoolShape& s) {
  const Tensor dy = contiguous_data(grad), out = empty(input_shape(s), grad.dtype(), grad.device());
  launch<kMaxPool2dScatter>(grad.device(), grad.dtype(),
                            {dy.raw_data(), out.raw_data(), taps.data<int32_t>(), grad.dtype(), s});
  return record("max_pool2d_grad", {&grad}, {&taps}, out,
                [s](Backward& bw) { bw.give(0, max_pool_gather(bw.grad(), bw.saved(0), s)); });
}

/// x [n, h, w, c] at the places that taps name.
Tensor max_pool_gather(const Tensor& x, const Tensor& taps, const PoolShape& s) {
  const Tensor source = contiguous_data(x), out = empty(output_shape(s), x.dtype(), x.device());
  launch<kMaxPool2dGather>(x.device(), x.dtype(),
                           {source.raw_data(), out.raw_data(), taps.data<int32_t>(), x.dtype(), s});
  return record("max_pool2d_gather", {&x}, {&taps}, out,
                [s](Backward& bw) { bw.give(0, max_pool_scatter(bw.grad(), bw.saved(0), s)); });
}

Tensor avg_pool_grad(const Tensor& grad, const PoolShape& s, bool count_padding);

Tensor avg_pool(const char* name, const Tensor& x, const PoolShape& s, bool count_padding) {
  check<DTypeError>(is_floating_point(x.dtype()), name, "the input is ", x.dtype(),
                    ". Hint: cast it to a float dtype.");
  const Tensor source = contiguous_data(x), out = empty(output_shape(s), x.dtype(), x.device());
  launch<kAvgPool2d>(x.device(), x.dtype(), {source.raw_data(), out.raw_data(), x.dtype(), s, count_padding});
  return record(name, {&x}, {}, out,
                [s, count_padding](Backward& bw) { bw.give(0, avg_pool_grad(bw.grad(), s, count_padding)); });
}

Tensor avg_pool_grad(const Tensor& grad, const PoolShape& s, bool count_padding) {
  const Tensor dy = contiguous_data(grad), out = empty(input_shape(s), grad.dtype(), grad.device());
  launch<kAvgPool2dGrad>(grad.device(), grad.dtype(), {dy.raw_data(), out.raw_data(), grad.dtype(), s, count_padding});
  return record("avg_pool2d_grad", {&grad}, {}, out,
                [s, count_padding](Backward& bw) { bw.give(0, avg_pool("avg_pool2d", bw.grad(), s, count_padding)); });
}

Tensor max_pool(const char* op, const Tensor& x, Pair kernel, Pair stride, Pair padding, bool ceil_mode) {
  const PoolShape s = pool_shape(op, x, kernel, stride, padding, ceil_mode);
  check<DTypeError>(x.dtype() != bool_, op, "the input is bool. Hint: cast it.");
  check<ValueError>(s.kernel[0] * s.kernel[1] <= INT32_MAX, op, "a kernel of ", s.kernel[0], " x ", s.kernel[1],
                    " is too large.");
  const Tensor source = contiguous_data(x), out = empty(output_shape(s), x.dtype(), x.device());
  const Tensor taps = is_grad_enabled() && x.requires_grad() ? empty(out.shape(), int32, x.device()) : Tensor();
  launch<kMaxPool2d>(
      x.device(), x.dtype(),
      {source.raw_data(), out.raw_data(), taps.defined() ? taps.data<int32_t>() : nullptr, x.dtype(), s});
  return record(op, {&x}, {&taps}, out, [s](Backward& bw) { bw.give(0, max_pool_scatter(bw.grad(), bw.saved(0), s)); });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Pair kernel, Pair stride, Pair padding, bool ceil_mode) {
  return max_pool("max_pool2d", x, kernel, stride, padding, ceil_mode);
}

Tensor max_pool1d(const Tensor& x, int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode) {
  check<ShapeError>(x.dim() == 3, "max_pool1d", "the input has shape ", x.shape(),
                    ", not [N, L, C]. Hint: channels are last.");
  return squeeze(max_pool("max_pool1d", unsqueeze(x, 1), {1, kernel}, {1, stride}, {0, padding}, ceil_mode), 1);
}

Tensor avg_pool2d(const Tensor& x, Pair kernel, Pair stride, Pair padding, bool ceil_mode, bool count_include_pad) {
  return avg_pool("avg_pool2d", x, pool_shape("avg_pool2d", x, kernel, stride, padding, ceil_mode), count_include_pad);
}

Tensor global_avg_pool2d(const Tensor& x) {
  check<ShapeError>(x.dim() == 4, "global_avg_pool2d", "the input has shape ", x.shape(),
                    ", not [N, H, W, C]. Hint: images are channels last.");
  const int64_t h = x.shape()[1], w = x.shape()[2];
  check<ShapeError>(h * w > 0, "global_avg_pool2d", "the input ", x.shape(), " has no positions to average.");
  const PoolShape s = pool_shape("global_avg_pool2d", x, {h, w}, {1, 1}, {0, 0}, false);
  return reshape(avg_pool("global_avg_pool2d", x, s, false), {s.n, s.c});
}

}  // namespace anello
