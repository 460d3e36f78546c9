// Running binary kernels on tensors and numbers.
// Main entry: detail::compute_binary<kTag>().
#pragma once

#include <anello/autograd/functions/common.h>
#include <anello/core/kernels/binary_ops.h>

namespace anello::detail {

/// out = f(a, b), not recorded, into a tensor whose shape is the common one. `key` is the dtype to compute for.
template <const auto& Tag>
inline void run_binary(const Tensor& out, const Operand& a, const Operand& b, DType key, double alpha = 1,
                       Scalar number = 0) {
  const Shape& shape = out.shape();
  if (out.numel() == 0) return;
  BinaryParams params;
  params.out = operand(out, shape);
  params.a = a;
  params.b = b;
  set_sizes(params, shape);
  params.dtype = key;
  params.alpha = alpha;
  params.scalar = number.to_double();
  params.int_scalar = number.to_int64();
  launch<Tag>(out.device(), key, params);
}

/// f(a, b) of two tensors as a new one of dtype `out`.
template <const auto& Tag>
inline Tensor compute_binary(const char* op, const Tensor& a, const Tensor& b, DType key, DType out, double alpha = 1) {
  check_same_device(op, a, b);
  const Shape shape = common_shape(op, a, b);
  Tensor y = empty(shape, out, a.device());
  run_binary<Tag>(y, operand(a, shape), operand(b, shape), key, alpha);
  return y;
}
/// f(a, number).
template <const auto& Tag>
inline Tensor compute_binary(const Tensor& a, Scalar b, DType key, DType out, double alpha = 1) {
  Tensor y = empty(a.shape(), out, a.device());
  run_binary<Tag>(y, operand(a, a.shape()), number(), key, alpha, b);
  return y;
}
/// f(number, b).
template <const auto& Tag>
inline Tensor compute_binary(Scalar a, const Tensor& b, DType key, DType out, double alpha = 1) {
  Tensor y = empty(b.shape(), out, b.device());
  run_binary<Tag>(y, number(), operand(b, b.shape()), key, alpha, a);
  return y;
}

}  // namespace anello::detail
