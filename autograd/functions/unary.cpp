// Elementwise functions of one operand.
// Main entry: the first section of autograd/functions.h; the formulas are in core/kernels/unary_ops.h.
#include <anello/autograd/functions/common.h>
#include <anello/core/kernels/binary_ops.h>
#include <anello/core/suggest.h>

#include <cmath>
#include <limits>

namespace anello {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class F, const auto& GradTag>
void unary_backward(Backward& bw, double alpha, double beta) {
  if constexpr (F::kSaves == Saves::zero_gradient) {
    bw.give(0, detail::zero_gradient(bw, 0));
  } else if constexpr (F::kSaves == Saves::nothing) {
    bw.give(0, F::derivative(bw.grad(), bw.grad(), alpha, beta));
  } else {
    const Tensor saved = bw.saved(0);
    const Tensor& dy = bw.grad();
    if (bw.create_graph()) return bw.give(0, F::derivative(dy, saved, alpha, beta));
    const Shape& shape = saved.shape();
    Tensor dx = empty(shape, dy.dtype(), dy.device());
    if (dx.numel() > 0) {
      UnaryGradParams params;
      params.dx = operand(dx, shape);
      params.dy = operand(dy, shape);
      params.saved = operand(saved, shape);
      set_sizes(params, shape);
      params.alpha = alpha, params.beta = beta;
      launch<GradTag>(dy.device(), dy.dtype(), params);
    }
    bw.give(0, dx);
  }
}

/// Runs the kernel, without recording.
template <const auto& Tag>
Tensor compute(const Tensor& x, DType out, double alpha, double beta) {
  Tensor y = empty(x.shape(), out, x.device());
  if (y.numel() > 0) {
    UnaryParams params;
    params.out = operand(y, x.shape());
    params.x = operand(x, x.shape());
    set_sizes(params, x.shape());
    params.alpha = alpha, params.beta = beta;
    launch<Tag>(x.device(), x.dtype(), params);
  }
  return y;
}

template <class F, const auto& Tag, const auto& GradTag>
Tensor unary_of(const char* name, const Tensor& x, double alpha, double beta) {
  const Tensor y = compute<Tag>(x, x.dtype(), alpha, beta);
  const auto backward = [alpha, beta](Backward& bw) { unary_backward<F, GradTag>(bw, alpha, beta); };
  if constexpr (F::kSaves == Saves::input)
    return record(name, {&x}, {&x}, y, backward);
  else if constexpr (F::kSaves == Saves::output)
    return record(name, {&x}, {&y}, y, backward);
  else
    return record(name, {&x}, {}, y, backward);
}

template <class F, const auto& Tag, const auto& GradTag, bool kIntegers>
Tensor unary(const char* name, const Tensor& x, double alpha = 0, double beta = 0) {
  if (!kIntegers && !is_floating_point(x.dtype())) [[unlikely]]
    return unary_of<F, Tag, GradTag>(name, cast(x, float32), alpha, beta);
  return unary_of<F, Tag, GradTag>(name, x, alpha, beta);
}

}  // namespace

#define ANELLO_INTEGERS_yes true
#define ANELLO_INTEGERS_no false
#define ANELLO_FUNCTION(function, Functor, integers)                                                    \
  Tensor function(const Tensor& x) {                                                                    \
    return unary<ops::Functor, k##Functor, k##Functor##Grad, ANELLO_INTEGERS_##integers>(#function, x); \
  }
ANELLO_UNARY_PLAIN(ANELLO_FUNCTION)
#undef ANELLO_FUNCTION

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return unary<ops::LeakyRelu, kLeakyRelu, kLeakyReluGrad, false>("leaky_relu", x, negative_slope);
}
Tensor elu(const Tensor& x, double alpha) { return unary<ops::Elu, kElu, kEluGrad, false>("elu", x, alpha); }

Tensor gelu(const Tensor& x, std::string_view approximate) {
  if (approximate == "none") return unary<ops::Gelu, kGelu, kGeluGrad, false>("gelu", x);
  check<ValueError>(approximate == "tanh", "gelu", "approximate is '", approximate, "'.",
                    approximate == "tanh" ? "" : suggest(approximate, {"none", "tanh"}));
  return unary<ops::GeluTanh, kGeluTanh, kGeluTanhGrad, false>("gelu", x);
}

Tensor softplus(const Tensor& x, double beta) {
  check<ValueError>(beta > 0, "softplus", "beta is ", beta, "; it must be positive.");
  return unary<ops::Softplus, kSoftplus, kSoftplusGrad, false>("softplus", x, beta);
}

Tensor clamp(const Tensor& x, double min, double max) {
  check<ValueError>(min <= max, "clamp", "min ", min, " is above max ", max, ".");
  const auto whole = [](double v) { return std::isinf(v) || v == std::floor(v); };
  if (!is_floating_point(x.dtype()) && !(whole(min) && whole(max)))  // a fraction has no place in an integer
    return clamp(cast(x, float32), min, max);
  return unary<ops::Clamp, kClamp, kClampGrad, true>("clamp", x, min, max);
}

Tensor pow(const Tensor& x, double exponent) {
  const bool whole = exponent >= 0 && exponent == std::floor(exponent) && exponent < 0x1p62;
  if (!is_floating_point(x.dtype()) && whole)
    return pow(x, full({}, static_cast<int64_t>(exponent), x.dtype(), x.device()));
  return unary<ops::PowScalar, kPowScalar, kPowScalarGrad, false>("pow", x, exponent);
}

Tensor isnan(const Tensor& x) { return compute<kIsNan>(x, bool_, 0, 0); }
Tensor isinf(const Tensor& x) { return logical_or(eq(x, kInfinity), eq(x, -kInfinity)); }
Tensor isfinite(const Tensor& x) { return logical_and(lt(x, kInfinity), gt(x, -kInfinity)); }
Tensor logical_not(const Tensor& x) { return compute<kLogicalNot>(x, bool_, 0, 0); }

}  // namespace anello
