// Dropout: the mask is drawn again from its key in backward, so nothing is kept.
// Main entry: dropout() of autograd/functions.h.
#include <anello/autograd/functions/common.h>
#include <anello/core/kernels/random.h>
#include <anello/core/random.h>

#include <cmath>

namespace anello {
namespace {

/// x with the mask of `draw`. Linear, so its backward is itself.
Tensor masked(const Tensor& x, double p, Draw draw) {
  const Tensor source = contiguous_data(x), y = empty(x.shape(), x.dtype(), x.device());
  const auto threshold = static_cast<uint32_t>(std::lround(p * 0x1p24));
  if (y.numel() > 0)
    launch<kDropout>(x.device(), x.dtype(),
                     {y.raw_data(), source.raw_data(), x.dtype(), y.numel(), draw.seed, draw.stream, threshold,
                      p < 1 ? 1 / (1 - p) : 0});
  return record("dropout", {&x}, {}, y, [p, draw](Backward& bw) { bw.give(0, masked(bw.grad(), p, draw)); });
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training) {
  check<ValueError>(p >= 0 && p <= 1, "dropout", "p is ", p, "; it must lie in [0, 1].");
  check<DTypeError>(is_floating_point(x.dtype()), "dropout", "the input is ", x.dtype(),
                    ". Hint: cast it to a float dtype.");
  if (!training || p == 0) return x;
  return masked(x, p, next_dropout_draw());
}

}  // namespace anello
