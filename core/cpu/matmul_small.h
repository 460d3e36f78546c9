// Products with a few rows on the left and a transposed right side: nothing to reuse, so nothing is packed.
// Main entry: small_product().
#pragma once

#include <anello/core/kernels/matmul.h>

namespace anello::kernel {

/// Rows of op(a) up to which small_product() is used.
inline constexpr int64_t kDotRows = 4;

/// One product out (+)= a b^T + bias of at most kDotRows rows; a and b are not stored transposed otherwise.
template <class A>
void small_product(const Context& ctx, const MatmulParams& p, const void* a, const void* b, void* out);

}  // namespace anello::kernel
