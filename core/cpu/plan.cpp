// Merging of the dims of strided operands.
// Main entry: make_plan().
#include <anello/core/cpu/plan.h>

namespace anello::kernel {
namespace {

/// The dims by descending output stride, so that an output that is a transposed view is written in its memory order.
void order_dims(const Operand& out, int dims, int* order) {
  for (int i = 0; i < dims; ++i) {
    int at = i;
    for (; at > 0 && out.strides[order[at - 1]] < out.strides[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
}

void merge_dims(const int64_t* sizes, int dims, const Operand* const* operands, Plan& plan) {
  int order[kMaxDims];
  order_dims(*operands[0], dims, order);
  const auto stride = [&](int operand, int dim) -> int64_t {
    return operands[operand]->data == nullptr ? 0 : operands[operand]->strides[dim];
  };
  for (int i = 0; i < dims; ++i) {
    const int dim = order[i];
    const int64_t size = sizes[dim];
    if (size == 1) continue;
    bool merges = plan.dims > 0;
    for (int k = 0; k < plan.count && merges; ++k) merges = plan.strides[k][plan.dims - 1] == stride(k, dim) * size;
    if (merges)
      plan.sizes[plan.dims - 1] *= size;
    else
      plan.sizes[plan.dims++] = size;
    for (int k = 0; k < plan.count; ++k) plan.strides[k][plan.dims - 1] = stride(k, dim);
  }
  if (plan.dims == 0) {  // one element
    plan.dims = 1, plan.sizes[0] = 1;
    for (int k = 0; k < plan.count; ++k) plan.strides[k][0] = operands[k]->data == nullptr ? 0 : 1;
  }
}

}  // namespace

Plan make_plan(const int64_t* sizes, int dims, const Operand* const* operands, int count) {
  Plan plan;
  plan.count = count;
  for (int k = 0; k < plan.count; ++k) {
    plan.data[k] = static_cast<char*>(operands[k]->data);
    plan.dtype[k] = operands[k]->dtype;
  }
  merge_dims(sizes, dims, operands, plan);
  plan.inner = plan.sizes[plan.dims - 1];
  for (int d = 0; d + 1 < plan.dims; ++d) plan.rows *= plan.sizes[d];
  for (int k = 0; k < plan.count; ++k) {
    const int64_t* strides = plan.strides[k];
    plan.constant[k] = strides[plan.dims - 1] == 0;
    plan.same_rows[k] = true;
    plan.contiguous[k] = strides[plan.dims - 1] == 1;
    for (int d = plan.dims - 2; d >= 0; --d) {
      plan.constant[k] &= strides[d] == 0;
      plan.same_rows[k] &= strides[d] == 0;
      plan.contiguous[k] &= strides[d] == strides[d + 1] * plan.sizes[d + 1];
    }
  }
  return plan;
}

}  // namespace anello::kernel
