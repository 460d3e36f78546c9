// What the elementwise and reduction functions share: checks, constants, operands of numbers.
// Main entry: constant(), check_same_device().
#pragma once

#include <anello/autograd/functions.h>
#include <anello/autograd/node.h>
#include <anello/core/operand.h>
#include <anello/core/registry.h>

#include <string_view>

namespace anello {

/// A scalar tensor with the dtype and device of `like`: the tensor form of the functors' constant().
inline Tensor constant(const Tensor& like, double value) { return full({}, value, like.dtype(), like.device()); }

namespace detail {

/// Stands for a tensor that need not be saved.
inline const Tensor kNotSaved;

inline void check_same_device(std::string_view op, const Tensor& a, const Tensor& b) {
  check<DeviceError>(a.device() == b.device(), op, "devices differ: ", a.device(), " and ", b.device(),
                     ". Hint: move one with to().");
}

/// The common shape of two operands.
inline Shape common_shape(std::string_view op, const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() ? a.shape() : broadcast_shapes(op, a.shape(), b.shape());
}

/// An operand that is a number, in BinaryParams::scalar.
inline Operand number() {
  Operand o;
  o.data = nullptr;
  o.dtype = DType::float64;
  return o;
}

/// Gradient zero of the shape of x.
inline Tensor zero_gradient(Backward& bw, int input) {
  return zeros(bw.input_shape(input), bw.input_dtype(input), bw.grad().device());
}

/// True when the gradient of t will be asked for; what only its gradient needs is saved only then.
inline bool wants_gradient(const Tensor& t) { return is_grad_enabled() && t.requires_grad(); }

}  // namespace detail
}  // namespace anello
