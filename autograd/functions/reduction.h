// Reducing any set of dims with kernels that reduce one middle dim.
// Main entry: detail::reduce_dims<kTag>().
#pragma once

#include <anello/autograd/functions/common.h>
#include <anello/core/kernels/reduce.h>

#include <vector>

namespace anello::detail {

/// The set of dims that a reduction removes; small enough to travel in a node's backward.
class Dims {
 public:
  /// Normalised and checked for repeats; an empty list means all.
  Dims(const char* op, const std::vector<int64_t>& list, int ndim) {
    if (list.empty())
      mask_ = (1u << ndim) - 1;
    else
      for (int d : normalize_dims(op, list, ndim)) mask_ |= 1u << d;
  }
  bool contains(int dim) const { return (mask_ >> dim & 1u) != 0; }
  /// Number of elements that make one result.
  int64_t count(const Shape& shape) const {
    int64_t n = 1;
    for (int i = 0; i < shape.size(); ++i)
      if (contains(i)) n *= shape[i];
    return n;
  }

 private:
  uint32_t mask_ = 0;
};

/// `shape` without the dims, or with size 1 in their place.
inline Shape reduced_shape(const Shape& shape, const Dims& dims, bool keepdim) {
  Shape result;
  for (int i = 0; i < shape.size(); ++i) {
    if (!dims.contains(i))
      result.push_back(shape[i]);
    else if (keepdim)
      result.push_back(1);
  }
  return result;
}

/// The innermost run of reduced dims as (outer, size, inner); dims of size 1 belong to any run. `shape` then has size 1
/// in their place.
struct Run {
  int64_t outer = 1, size = 1, inner = 1;
};
Run take_run(Shape& shape, const Dims& dims);

/// The reduction of x over dims as a new tensor of shape `result` and dtype `out`, not recorded. Dims that are not side
/// by side are reduced one run after another, in accumulate_type between.
template <const auto& Tag>
Tensor reduce_dims(const Tensor& x, const Dims& dims, const Shape& result, DType out, double scale = 1) {
  Tensor y = empty(result, out, x.device());
  if (y.numel() == 0) return y;
  Tensor source = contiguous_data(x);
  Shape left = x.shape();
  for (;;) {
    const Run run = take_run(left, dims);
    const bool last = numel(left) == y.numel();
    const Tensor target = last ? y : empty(left, accumulate_type(x.dtype()), x.device());
    launch<Tag>(x.device(), source.dtype(),
                {source.raw_data(), target.raw_data(), nullptr, source.dtype(), target.dtype(), run.outer, run.size,
                 run.inner, last ? scale : 1.0});
    if (last) return y;
    source = target;
  }
}

/// A view of grad (the shape of the reduction's result) that repeats it along the reduced dims of input 0.
inline Tensor expand_back(const Backward& bw, const Tensor& grad, const Dims& dims) {
  const Shape& shape = bw.input_shape(0);
  return broadcast_to(reshape(grad, reduced_shape(shape, dims, true)), shape);
}

}  // namespace anello::detail
