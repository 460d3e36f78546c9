// From tensors to the operands of elementwise kernels.
// Main entry: operand(), set_sizes().
#pragma once

#include <anello/core/kernels/elementwise.h>
#include <anello/core/tensor.h>

namespace anello {

/// The tensor seen through `sizes` (it must broadcast to it): strides aligned to the last dim, 0 where it is broadcast.
inline Operand operand(const Tensor& t, const Shape& sizes) {
  const TensorImpl& impl = t.impl();
  Operand o{t.raw_data(), impl.dtype, {}};
  const int shift = sizes.size() - impl.shape.size();
  for (int i = 0; i < shift; ++i) o.strides[i] = 0;
  for (int i = 0; i < impl.shape.size(); ++i)
    o.strides[i + shift] = impl.shape[i] == 1 && sizes[i + shift] != 1 ? 0 : impl.strides[i];
  return o;
}

/// Fills sizes and dims of a parameter struct.
template <class Params>
inline void set_sizes(Params& params, const Shape& sizes) {
  params.dims = sizes.size();
  std::copy(sizes.begin(), sizes.end(), params.sizes);
}

}  // namespace anello
