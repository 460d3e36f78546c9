// The table of unary functions: one row and one functor each. A functor's forward serves every kernel; its derivative
// serves the fused backward kernel (on values) and the differentiable backward (on tensors) alike. Main entry:
// ANELLO_UNARY_TABLE(ROW).
#pragma once

#include <anello/core/kernels/elementwise.h>

#include <cmath>

namespace anello {

// ROW(function name, Functor, integers): `integers` yes = also defined on integer dtypes (result in the same dtype); no
// = integer inputs are promoted to float32 by the public function.
#define ANELLO_UNARY_TABLE(ROW)   \
  ROW(neg, Neg, yes)              \
  ROW(abs, Abs, yes)              \
  ROW(sign, Sign, yes)            \
  ROW(square, Square, yes)        \
  ROW(floor, Floor, yes)          \
  ROW(ceil, Ceil, yes)            \
  ROW(round, Round, yes)          \
  ROW(exp, Exp, no)               \
  ROW(expm1, Expm1, no)           \
  ROW(log, Log, no)               \
  ROW(log1p, Log1p, no)           \
  ROW(sqrt, Sqrt, no)             \
  ROW(rsqrt, Rsqrt, no)           \
  ROW(reciprocal, Reciprocal, no) \
  ROW(sin, Sin, no)               \
  ROW(cos, Cos, no)               \
  ROW(tanh, Tanh, no)             \
  ROW(erf, Erf, no)               \
  ROW(sigmoid, Sigmoid, no)       \
  ROW(relu, Relu, yes)            \
  ROW(leaky_relu, LeakyRelu, no)  \
  ROW(elu, Elu, no)               \
  ROW(gelu, Gelu, no)             \
  ROW(gelu_tanh, GeluTanh, no)    \
  ROW(silu, Silu, no)             \
  ROW(softplus, Softplus, no)     \
  ROW(clamp, Clamp, yes)          \
  ROW(pow_scalar, PowScalar, no)

#define ANELLO_UNARY_TAG(function, Functor, integers)            \
  inline constexpr KernelTag<UnaryParams> k##Functor{#function}; \
  inline constexpr KernelTag<UnaryGradParams> k##Functor##Grad{#function "_grad"};
ANELLO_UNARY_TABLE(ANELLO_UNARY_TAG)
#undef ANELLO_UNARY_TAG

}  // namespace anello
