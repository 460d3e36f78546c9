// Reductions over any dims, and their gradients.
// Main entry: sum(), mean(), max(), argmax(), ... of autograd/functions.h. var, logsumexp and norm are in
// statistics.cpp.
#include <anello/autograd/functions/reduction.h>

namespace anello {
namespace {

using detail::Dims;
using detail::expand_back;
using detail::reduce_dims;
using detail::reduced_shape;

void check_not_empty(const char* op, const Tensor& x, const Dims& dims) {
  check<ShapeError>(dims.count(x.shape()) > 0, op, "there is nothing to choose from in shape ", x.shape(), ".");
}

/// The gradient goes to all elements equal to the extreme one, in equal parts.
Tensor extreme_gradient(Backward& bw, const Dims& dims) {
  const Tensor x = bw.saved(0);
  const Shape kept = reduced_shape(x.shape(), dims, true);
  const Tensor y = reshape(bw.saved(1), kept), grad = reshape(bw.grad(), kept);
  const Tensor chosen = logical_or(eq(x, y), logical_and(isnan(x), isnan(y)));
  const Tensor count = reduce_dims<kSum>(chosen, dims, kept, int64);
  return where(chosen, div(grad, cast(count, accumulate_type(grad.dtype()))), constant(grad, 0));
}

template <const auto& Tag>
Tensor extreme(const char* op, const Tensor& x, const std::vector<int64_t>& list, bool keepdim) {
  const Dims dims(op, list, x.dim());
  check_not_empty(op, x, dims);
  const Tensor y = reduce_dims<Tag>(x, dims, reduced_shape(x.shape(), dims, keepdim), x.dtype());
  return record(op, {&x}, {&x, &y}, y, [dims](Backward& bw) { bw.give(0, extreme_gradient(bw, dims)); });
}

template <const auto& Tag>
Tensor arg_extreme(const char* op, const Tensor& x, int64_t dim, bool keepdim) {
  const int d = normalize_dim(op, dim, x.dim());
  const Dims dims = x.dim() == 0 ? Dims(op, {}, 0) : Dims(op, {d}, x.dim());
  check_not_empty(op, x, dims);
  const Tensor y = empty(reduced_shape(x.shape(), dims, keepdim), int64, x.device());
  if (y.numel() == 0) return y;
  ArgReduceParams params{nullptr, y.data<int64_t>(), x.dtype(), 1, 1, 1};
  for (int i = 0; i < x.dim(); ++i) (i < d ? params.outer : i == d ? params.size : params.inner) *= x.shape()[i];
  const Tensor source = contiguous_data(x);
  params.x = source.raw_data();
  launch<Tag>(x.device(), x.dtype(), params);
  return y;
}

/// Product of all other elements along the last dim of x, right for zeros too: the product of those before (by doubling
/// steps) times that of those after.
Tensor product_of_others(const Tensor& x) {
  const int64_t n = x.size(-1);
  const auto before = [n](Tensor t) {  // t[i] becomes the product of t[0 .. i-1]
    Shape one = t.shape();
    one[t.dim() - 1] = 1;
    t = cat({ones(one, t.dtype(), t.device()), slice(t, -1, 0, n - 1)}, -1);
    for (int64_t step = 1; step < n; step *= 2)
      t = cat({slice(t, -1, 0, step), mul(slice(t, -1, step, n), slice(t, -1, 0, n - step))}, -1);
    return t;
  };
  return mul(before(x), flip(before(flip(x, {-1})), {-1}));
}

void prod_backward(Backward& bw, const Dims& dims) {
  const Tensor x = bw.saved(0);
  if (x.numel() == 0) return bw.give(0, detail::zero_gradient(bw, 0));
  const Shape kept = reduced_shape(x.shape(), dims, true);
  const Tensor grad = reshape(bw.grad(), kept);
  if (all(ne(bw.saved(1), 0)).item<int64_t>() != 0) return bw.give(0, mul(grad, div(reshape(bw.saved(1), kept), x)));
  // A zero among the factors: bring the reduced dims to the end and multiply the others.
  std::vector<int64_t> order, inverse(static_cast<size_t>(x.dim()));
  for (int pass = 0; pass < 2; ++pass)
    for (int i = 0; i < x.dim(); ++i)
      if (dims.contains(i) == (pass == 1)) order.push_back(i);
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  const Tensor moved = permute(x, order);
  const Tensor others = product_of_others(reshape(moved, {-1, dims.count(x.shape())}));
  bw.give(0, mul(grad, permute(reshape(others, moved.shape()), inverse)));
}

DType sum_type(DType dtype) { return is_floating_point(dtype) ? dtype : int64; }

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int64_t>& list, bool keepdim) {
  const Dims dims("sum", list, x.dim());
  const Tensor y = reduce_dims<kSum>(x, dims, reduced_shape(x.shape(), dims, keepdim), sum_type(x.dtype()));
  return record("sum", {&x}, {}, y, [dims](Backward& bw) { bw.give(0, expand_back(bw, bw.grad(), dims)); });
}

Tensor mean(const Tensor& x, const std::vector<int64_t>& list, bool keepdim) {
  const Dims dims("mean", list, x.dim());
  const double scale = 1.0 / static_cast<double>(dims.count(x.shape()));  // infinity for nothing: 0 times it is NaN
  const DType dtype = is_floating_point(x.dtype()) ? x.dtype() : float32;
  const Tensor y = reduce_dims<kSum>(x, dims, reduced_shape(x.shape(), dims, keepdim), dtype, scale);
  return record("mean", {&x}, {}, y,
                [dims, scale](Backward& bw) { bw.give(0, expand_back(bw, mul(bw.grad(), scale), dims)); });
}

Tensor prod(const Tensor& x, const std::vector<int64_t>& list, bool keepdim) {
  const Dims dims("prod", list, x.dim());
  const Tensor y = reduce_dims<kProd>(x, dims, reduced_shape(x.shape(), dims, keepdim), sum_type(x.dtype()));
  return record("prod", {&x}, {&x, &y}, y, [dims](Backward& bw) { prod_backward(bw, dims); });
}

Tensor max(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim) {
  return extreme<kMax>("max", x, dims, keepdim);
}
Tensor min(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim) {
  return extreme<kMin>("min", x, dims, keepdim);
}
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim) { return arg_extreme<kArgMax>("argmax", x, dim, keepdim); }
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim) { return arg_extreme<kArgMin>("argmin", x, dim, keepdim); }

Tensor any(const Tensor& x, const std::vector<int64_t>& list, bool keepdim) {
  const Dims dims("any", list, x.dim());
  return reduce_dims<kAny>(x, dims, reduced_shape(x.shape(), dims, keepdim), bool_);
}
Tensor all(const Tensor& x, const std::vector<int64_t>& list, bool keepdim) {
  const Dims dims("all", list, x.dim());
  return reduce_dims<kAll>(x, dims, reduced_shape(x.shape(), dims, keepdim), bool_);
}

}  // namespace anello
