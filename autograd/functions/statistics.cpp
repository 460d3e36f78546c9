// Variance, log-sum-exp and the Euclidean norm.
// Main entry: var(), stddev(), logsumexp(), norm() of autograd/functions.h; take_run() for all reductions.
#include <anello/autograd/functions/reduction.h>

#include <algorithm>
#include <limits>

namespace anello {
namespace detail {

Run take_run(Shape& shape, const Dims& dims) {
  Run run;
  int i = shape.size() - 1;
  const auto reduced = [&](int d) { return dims.contains(d) && shape[d] != 1; };
  for (; i >= 0 && !reduced(i); --i) run.inner *= shape[i];
  for (; i >= 0 && (reduced(i) || shape[i] == 1); --i) {
    run.size *= shape[i];
    shape[i] = 1;
  }
  for (; i >= 0; --i) run.outer *= shape[i];
  return run;
}

}  // namespace detail

namespace {

using detail::Dims;
using detail::reduce_dims;
using detail::reduced_shape;

DType float_type(DType dtype) { return is_floating_point(dtype) ? dtype : float32; }

/// x with the reduced dims last, contiguous: kernels with two passes see all of an output's elements in one row.
Tensor reduced_last(const Tensor& x, const Dims& dims) {
  Shape shape;
  Strides strides;
  for (int pass = 0; pass < 2; ++pass)
    for (int i = 0; i < x.dim(); ++i)
      if (dims.contains(i) == (pass == 1)) shape.push_back(x.shape()[i]), strides.push_back(x.strides()[i]);
  return contiguous_data(as_strided(x, shape, strides, x.storage_offset()));
}

/// sum (x - mean)^2 * scale in accumulate_type, as `result`; mean may be undefined (0).
Tensor sum_squares(const Tensor& x, const Dims& dims, const Shape& result, const Tensor& mean, double scale) {
  const Tensor y = empty(result, accumulate_type(x.dtype()), x.device());
  if (y.numel() == 0) return y;
  Shape left = x.shape();
  detail::Run run = detail::take_run(left, dims);
  const bool one_run = numel(left) == y.numel();
  const Tensor source = one_run ? contiguous_data(x) : reduced_last(x, dims);
  if (!one_run) run = {y.numel(), dims.count(x.shape()), 1};
  launch<kCenteredSquares>(x.device(), x.dtype(),
                           {source.raw_data(), y.raw_data(), mean.defined() ? mean.raw_data() : nullptr, x.dtype(),
                            y.dtype(), run.outer, run.size, run.inner, scale});
  return y;
}

Tensor as_type(Tensor x, DType dtype) { return x.dtype() == dtype ? x : copy_as(x, dtype); }

}  // namespace

Tensor var(const Tensor& input, const std::vector<int64_t>& list, double correction, bool keepdim) {
  const Tensor x = cast(input, float_type(input.dtype()));
  const Dims dims("var", list, x.dim());
  const double n = static_cast<double>(dims.count(x.shape())), divisor = std::max(0.0, n - correction);
  const Shape result = reduced_shape(x.shape(), dims, keepdim);
  const DType wide = accumulate_type(x.dtype());
  const Tensor center = reduce_dims<kSum>(x, dims, result, wide, 1 / n);
  const Tensor y = as_type(sum_squares(x, dims, result, center, 1 / divisor), x.dtype());
  return record("var", {&x}, {&x}, y, [dims, wide, scale = 2 / divisor](Backward& bw) {
    const Tensor values = cast(bw.saved(0), wide);
    std::vector<int64_t> all;
    for (int i = 0; i < values.dim(); ++i)
      if (dims.contains(i)) all.push_back(i);
    const Tensor centered = all.empty() ? sub(values, values) : sub(values, mean(values, all, true));
    bw.give(0, mul(detail::expand_back(bw, mul(cast(bw.grad(), wide), scale), dims), centered));
  });
}

Tensor stddev(const Tensor& x, const std::vector<int64_t>& dims, double correction, bool keepdim) {
  normalize_dims("std", dims, x.dim());
  const DType dtype = float_type(x.dtype());
  const Tensor variance = var(cast(x, accumulate_type(dtype)), dims, correction, keepdim);
  // The square root has no slope at 0, where all elements are equal: the gradient there is 0, not infinity times 0.
  const Tensor zero = eq(variance, 0);
  return cast(where(zero, constant(variance, 0), sqrt(where(zero, constant(variance, 1), variance))), dtype);
}

Tensor logsumexp(const Tensor& input, const std::vector<int64_t>& list, bool keepdim) {
  const Tensor x = cast(input, float_type(input.dtype()));
  const Dims dims("logsumexp", list, x.dim());
  const Shape result = reduced_shape(x.shape(), dims, keepdim), kept = reduced_shape(x.shape(), dims, true);
  const double infinity = std::numeric_limits<double>::infinity();
  const DType wide = accumulate_type(x.dtype());
  Tensor y;
  {
    const NoGradGuard no_grad;
    if (dims.count(x.shape()) == 0) {
      y = full(result, -infinity, x.dtype(), x.device());
    } else {
      // An infinite largest element is not subtracted: infinity minus infinity is no number.
      const Tensor values = cast(x, wide), largest = reduce_dims<kMax>(values, dims, kept, wide);
      const Tensor shift = where(eq(abs(largest), infinity), constant(largest, 0), largest);
      const Tensor total = reduce_dims<kSum>(exp(sub(values, shift)), dims, kept, wide);
      y = as_type(reshape(add(log(total), shift), result), x.dtype());
    }
  }
  return record("logsumexp", {&x}, {&x, &y}, y, [dims, wide, kept, infinity](Backward& bw) {
    const Tensor values = cast(bw.saved(0), wide), total = reshape(cast(bw.saved(1), wide), kept);
    // All -infinity: e^(-inf - 0) is 0, where e^(-inf + inf) would be NaN.
    const Tensor shift = where(eq(total, -infinity), constant(total, 0), total);
    bw.give(0, mul(reshape(cast(bw.grad(), wide), kept), exp(sub(values, shift))));
  });
}

Tensor norm(const Tensor& input, const std::vector<int64_t>& list, bool keepdim) {
  const Tensor x = cast(input, float_type(input.dtype()));
  const Dims dims("norm", list, x.dim());
  const Shape kept = reduced_shape(x.shape(), dims, true);
  Tensor y;
  {
    const NoGradGuard no_grad;
    y = as_type(sqrt(sum_squares(x, dims, reduced_shape(x.shape(), dims, keepdim), {}, 1)), x.dtype());
  }
  return record("norm", {&x}, {&x, &y}, y, [dims, kept](Backward& bw) {
    const Tensor length = reshape(bw.saved(1), kept), zero = eq(length, 0);
    const Tensor unit = div(bw.saved(0), where(zero, constant(length, 1), length));
    bw.give(0, mul(reshape(bw.grad(), kept), unit));  // x is 0 where the length is 0
  });
}

}  // namespace anello
