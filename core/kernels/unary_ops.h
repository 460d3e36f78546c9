// The table of unary functions: one row and one functor each.
// Main entry: ANELLO_UNARY_TABLE(ROW).
//
// A functor's forward serves every kernel; its derivative serves the fused backward kernel (on values) and the
// differentiable backward (on tensors) alike.
//
// Functors are written in a small vocabulary found by argument-dependent lookup: + - * /, gt le ... where(),
// constant(x, number) and the functions of this table. A CPU register (core/cpu/vec.h), a CUDA thread's value and a
// Tensor each provide it, so this header needs none of them. derivative(dy, s, alpha, beta) returns dy times the
// derivative; s is the input or the output of forward, whichever kSaves names. Masking selects instead of multiplying
// by 0, so that an infinite dy does not become NaN.
#pragma once

#include <anello/core/kernels/elementwise.h>

#include <limits>

namespace anello {

// ROW(function name, Functor, integers): `yes` = also defined on integer dtypes (result in the same dtype); `no` =
// integer inputs are promoted to float32 by the public function. alpha and beta of the second list are the public
// function's arguments.
#define ANELLO_UNARY_TABLE(ROW) \
  ANELLO_UNARY_PLAIN(ROW)       \
  ANELLO_UNARY_WITH_ARGUMENTS(ROW)
#define ANELLO_UNARY_PLAIN(ROW)   \
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
  ROW(silu, Silu, no)
#define ANELLO_UNARY_WITH_ARGUMENTS(ROW) \
  ROW(leaky_relu, LeakyRelu, no)         \
  ROW(elu, Elu, no)                      \
  ROW(gelu, Gelu, no)                    \
  ROW(gelu_tanh, GeluTanh, no)           \
  ROW(softplus, Softplus, no)            \
  ROW(clamp, Clamp, yes)                 \
  ROW(pow_scalar, PowScalar, no)

// nvcc compiles functors for the device too.
#ifdef __CUDACC__
#define ANELLO_FUNCTOR __host__ __device__ static inline
#else
#define ANELLO_FUNCTOR static inline
#endif

/// What a function keeps for its backward.
enum class Saves {
  nothing,  ///< derivative() ignores s, and is as cheap as a kernel of its own
  input,
  output,
  zero_gradient  ///< piecewise constant: there is no derivative()
};

namespace ops {

struct Neg {
  static constexpr Saves kSaves = Saves::nothing;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return -x;
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T&, double, double) {
    return -dy;
  }
};
struct Abs {
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return abs(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double, double) {
    return dy * sign(x);
  }
};
struct Sign {
  static constexpr Saves kSaves = Saves::zero_gradient;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return sign(x);
  }
};
struct Square {
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return x * x;
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double, double) {
    return dy * (x * 2.0);
  }
};
struct Floor {
  static constexpr Saves kSaves = Saves::zero_gradient;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return floor(x);
  }
};
struct Ceil {
  static constexpr Saves kSaves = Saves::zero_gradient;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return ceil(x);
  }
};
struct Round {
  static constexpr Saves kSaves = Saves::zero_gradient;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return round(x);
  }
};
struct Exp {
  static constexpr Saves kSaves = Saves::output;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return exp(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& y, double, double) {
    return dy * y;
  }
};
struct Expm1 {
  static constexpr Saves kSaves = Saves::output;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return expm1(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& y, double, double) {
    return dy * (y + 1.0);
  }
};
struct Log {
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return log(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double, double) {
    return dy / x;
  }
};
struct Log1p {
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return log1p(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double, double) {
    return dy / (x + 1.0);
  }
};
struct Sqrt {
  static constexpr Saves kSaves = Saves::output;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return sqrt(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& y, double, double) {
    return dy / (y * 2.0);
  }
};
struct Rsqrt {
  static constexpr Saves kSaves = Saves::output;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return constant(x, 1.0) / sqrt(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& y, double, double) {
    return dy * (y * y * y * -0.5);
  }
};
struct Reciprocal {
  static constexpr Saves kSaves = Saves::output;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return constant(x, 1.0) / x;
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& y, double, double) {
    return -dy * (y * y);
  }
};
struct Sin {
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return sin(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double, double) {
    return dy * cos(x);
  }
};
struct Cos {
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return cos(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double, double) {
    return -dy * sin(x);
  }
};
struct Tanh {
  static constexpr Saves kSaves = Saves::output;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return tanh(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& y, double, double) {
    return dy * (constant(y, 1.0) - y * y);
  }
};
struct Erf {
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return erf(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double, double) {
    return dy * (exp(-(x * x)) * 1.1283791670955126);  // 2 / sqrt(pi)
  }
};
struct Sigmoid {
  static constexpr Saves kSaves = Saves::output;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return sigmoid(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& y, double, double) {
    return dy * (y * (constant(y, 1.0) - y));
  }
};
struct Relu {
  static constexpr Saves kSaves = Saves::output;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return where(le(x, 0.0), constant(x, 0.0), x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& y, double, double) {
    return where(le(y, 0.0), constant(dy, 0.0), dy);
  }
};
struct Silu {  // x * sigmoid(x)
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return x * sigmoid(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double, double) {
    const T s = sigmoid(x);
    return dy * (s * (x * (constant(x, 1.0) - s) + 1.0));
  }
};
struct LeakyRelu {  // alpha: slope for negative x
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double alpha, double) {
    return where(gt(x, 0.0), x, x * alpha);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double alpha, double) {
    return where(gt(x, 0.0), dy, dy * alpha);
  }
};
struct Elu {  // x above 0, alpha (e^x - 1) below
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double alpha, double) {
    return where(gt(x, 0.0), x, expm1(x) * alpha);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double alpha, double) {
    // Limited above, so that the side not taken stays finite: its own gradient is multiplied by 0 under create_graph.
    const T below = exp(clamp(x, -std::numeric_limits<double>::infinity(), 0.0));
    return where(gt(x, 0.0), dy, dy * (below * alpha));
  }
};
struct Gelu {  // x Phi(x), Phi the distribution function of the standard normal
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T cdf(const T& x) {
    return erf(x * 0.70710678118654752) * 0.5 + 0.5;
  }
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return x * cdf(x);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double, double) {
    const T density = exp(x * x * -0.5) * 0.39894228040143268;  // 1 / sqrt(2 pi)
    return dy * (cdf(x) + x * density);
  }
};
struct GeluTanh {  // 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3); arXiv 1606.08415
  static constexpr Saves kSaves = Saves::input;
  static constexpr double kScale = 0.79788456080286536, kCubic = 0.044715;
  template <class T>
  ANELLO_FUNCTOR T inner(const T& x) {
    return tanh(x * (x * x * kCubic + 1.0) * kScale);
  }
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double, double) {
    return x * ((inner(x) + 1.0) * 0.5);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double, double) {
    const T t = inner(x);
    const T near = clamp(x, -16.0, 16.0);  // beyond, 1 - t^2 is 0, which an infinite slope would make NaN
    const T slope = (near * near * (3 * kCubic) + 1.0) * kScale;
    return dy * ((t + 1.0) * 0.5 + x * (constant(t, 1.0) - t * t) * slope * 0.5);
  }
};
struct Softplus {  // log(1 + e^(alpha x)) / alpha, as max(x, 0) + log1p(e^-|alpha x|) / alpha
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double alpha, double) {
    return where(le(x, 0.0), constant(x, 0.0), x) + log1p(exp(-abs(x * alpha))) / alpha;
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double alpha, double) {
    return dy * sigmoid(x * alpha);
  }
};
struct Clamp {  // to [alpha, beta]
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double alpha, double beta) {
    return clamp(x, alpha, beta);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double alpha, double beta) {
    const T zero = constant(dy, 0.0);
    return where(lt(x, alpha), zero, where(gt(x, beta), zero, dy));
  }
};
struct PowScalar {  // x^alpha
  static constexpr Saves kSaves = Saves::input;
  template <class T>
  ANELLO_FUNCTOR T forward(const T& x, double alpha, double) {
    return pow(x, alpha);
  }
  template <class T>
  ANELLO_FUNCTOR T derivative(const T& dy, const T& x, double alpha, double) {
    if (alpha == 0) return dy * 0.0;  // also where x^-1 is infinite
    return dy * (pow(x, alpha - 1) * alpha);
  }
};

}  // namespace ops

#define ANELLO_UNARY_TAG(function, Functor, integers)            \
  inline constexpr KernelTag<UnaryParams> k##Functor{#function}; \
  inline constexpr KernelTag<UnaryGradParams> k##Functor##Grad{#function "_grad"};
ANELLO_UNARY_TABLE(ANELLO_UNARY_TAG)
#undef ANELLO_UNARY_TAG

}  // namespace anello
