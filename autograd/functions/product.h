// What matrix products and convolutions share: the dtype of the result and the gradient of a bias.
// Main entry: product_dtype(), give_bias().
#pragma once

#include <anello/autograd/node.h>

namespace anello::detail {

/// The promoted dtype of the operands (bias may be undefined). Raises DTypeError unless all are floats, DeviceError
/// unless all are on one device.
DType product_dtype(const char* op, const Tensor& a, const Tensor& b, const Tensor& bias = {});

/// Hands over the gradient of a bias [C] added to every row of a result [..., C], into its destination when it has one.
void give_bias(Backward& bw, int input, const Tensor& grad);

}  // namespace anello::detail
