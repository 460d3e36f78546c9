// Softmax and log_softmax along a dim.
// Main entry: softmax(), log_softmax() of autograd/functions.h.
#include <anello/autograd/functions.h>
#include <anello/autograd/node.h>
#include <anello/core/kernels/softmax.h>
#include <anello/core/registry.h>

namespace anello {
namespace {

struct Lines {
  int64_t outer = 1, size = 1, inner = 1;
  Lines(const Shape& shape, int dim) {
    for (int i = 0; i < shape.size(); ++i) (i < dim ? outer : i == dim ? size : inner) *= shape[i];
  }
};

template <const auto& Forward, const auto& Backwards>
Tensor softmax_along(const char* name, const Tensor& x, int64_t dim, bool log_space) {
  check<DTypeError>(is_floating_point(x.dtype()), name, "the input is ", x.dtype(),
                    ". Hint: cast it to a float dtype.");
  const int d = normalize_dim(name, dim, x.dim());
  const Tensor y = empty(x.shape(), x.dtype(), x.device());
  const Tensor source = contiguous_data(x);
  const Lines lines(x.shape(), d);
  if (x.numel() > 0) {
    launch<Forward>(x.device(), x.dtype(), {y.raw_data(), source.raw_data(), lines.outer, lines.size, lines.inner});
  }
  return record(name, {&x}, {&y}, y, [d, lines, log_space](Backward& bw) {
    const Tensor out = bw.saved(0), grad = bw.grad();
    if (!bw.create_graph()) {
      const Tensor dy = contiguous_data(grad), dx = empty(out.shape(), out.dtype(), out.device());
      if (dx.numel() > 0) {
        launch<Backwards>(dx.device(), dx.dtype(),
                          {dx.raw_data(), dy.raw_data(), out.raw_data(), lines.outer, lines.size, lines.inner});
      }
      return bw.give(0, dx);
    }
    const DType wide = accumulate_type(out.dtype());
    const Tensor y32 = cast(out, wide), dy = cast(grad, wide);
    bw.give(0, log_space ? dy - exp(y32) * sum(dy, {d}, true) : y32 * (dy - sum(dy * y32, {d}, true)));
  });
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) { return softmax_along<kSoftmax, kSoftmaxGrad>("softmax", x, dim, false); }
Tensor log_softmax(const Tensor& x, int64_t dim) {
  return softmax_along<kLogSoftmax, kLogSoftmaxGrad>("log_softmax", x, dim, true);
}

}  // namespace anello
