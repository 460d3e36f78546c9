// Elementwise functions of one tensor, as functions of the module and methods of Tensor.
// Main entry: bind_elementwise().
#include "bindings.h"

#include <anello/autograd/functions.h>

#include <limits>

namespace anello::python {
namespace {

using Unary = Tensor (*)(const Tensor&);
struct Row {
  const char* name;
  Unary function;
  const char* doc;
};

const Row kArithmetic[] = {
    {"neg", &neg, R"(-x of each element.

>>> import anello
>>> anello.tensor([1.0, -2.0]).neg().tolist()
[-1.0, 2.0]
)"},
    {"abs", &abs, R"(The absolute value of each element; the gradient at 0 is 0.

>>> import anello
>>> anello.abs(anello.tensor([-3, 4])).tolist()
[3, 4]
)"},
    {"sign", &sign, R"(-1, 0 or 1 of each element; its gradient is 0.

>>> import anello
>>> anello.sign(anello.tensor([-3.0, 0.0, 4.0])).tolist()
[-1.0, 0.0, 1.0]
)"},
    {"square", &square, R"(x * x of each element.

>>> import anello
>>> anello.square(anello.tensor([2, -3])).tolist()
[4, 9]
)"},
    {"floor", &floor, R"(The largest integer that is not above each element; its gradient is 0.

>>> import anello
>>> anello.floor(anello.tensor([1.5, -1.5])).tolist()
[1.0, -2.0]
)"},
    {"ceil", &ceil, R"(The smallest integer that is not below each element; its gradient is 0.

>>> import anello
>>> anello.ceil(anello.tensor([1.5, -1.5])).tolist()
[2.0, -1.0]
)"},
    {"round", &round, R"(The nearest integer, halves to even; its gradient is 0.

>>> import anello
>>> anello.round(anello.tensor([0.5, 1.5, 2.4])).tolist()
[0.0, 2.0, 2.0]
)"},
    {"exp", &exp, R"(e to the power of each element.

>>> import anello
>>> anello.exp(anello.tensor([0.0])).tolist()
[1.0]
)"},
    {"expm1", &expm1, R"(exp(x) - 1, exact for small x.

>>> import anello
>>> anello.expm1(anello.tensor([0.0])).tolist()
[0.0]
)"},
    {"log", &log, R"(The natural logarithm of each element: -inf at 0, NaN below.

>>> import anello
>>> anello.log(anello.tensor([1.0, 0.0])).tolist()
[0.0, -inf]
)"},
    {"log1p", &log1p, R"(log(1 + x), exact for small x.

>>> import anello
>>> anello.log1p(anello.tensor([0.0])).tolist()
[0.0]
)"},
    {"sqrt", &sqrt, R"(The square root of each element; NaN below 0.

>>> import anello
>>> anello.sqrt(anello.tensor([4.0, 9.0])).tolist()
[2.0, 3.0]
)"},
    {"rsqrt", &rsqrt, R"(1 / sqrt(x) of each element.

>>> import anello
>>> anello.rsqrt(anello.tensor([4.0])).tolist()
[0.5]
)"},
    {"reciprocal", &reciprocal, R"(1 / x of each element.

>>> import anello
>>> anello.reciprocal(anello.tensor([4.0])).tolist()
[0.25]
)"},
    {"sin", &sin, R"(The sine of each element, in radians.

>>> import anello
>>> anello.sin(anello.tensor([0.0])).tolist()
[0.0]
)"},
    {"cos", &cos, R"(The cosine of each element, in radians.

>>> import anello
>>> anello.cos(anello.tensor([0.0])).tolist()
[1.0]
)"},
    {"tanh", &tanh, R"(The hyperbolic tangent of each element.

>>> import anello
>>> anello.tanh(anello.tensor([0.0])).tolist()
[0.0]
)"},
    {"erf", &erf, R"(The error function of each element.

>>> import anello
>>> anello.erf(anello.tensor([0.0])).tolist()
[0.0]
)"},
    {"isinf", &isinf, R"(True where an element is infinite (bool).

>>> import anello
>>> anello.isinf(anello.tensor([1.0, float("-inf"), float("nan")])).tolist()
[False, True, False]
)"},
    {"isfinite", &isfinite, R"(True where an element is neither infinite nor NaN (bool).

>>> import anello
>>> anello.isfinite(anello.tensor([1.0, float("inf"), float("nan")])).tolist()
[True, False, False]
)"},
    {"isnan", &isnan, R"(True where an element is NaN (bool).

>>> import anello
>>> anello.isnan(anello.tensor([1.0, float("nan")])).tolist()
[False, True]
)"},
    {"logical_not", &logical_not, R"(True where an element is 0 (bool).

>>> import anello
>>> anello.logical_not(anello.tensor([0, 5])).tolist()
[True, False]
)"},
};

const Row kActivations[] = {
    {"sigmoid", &sigmoid, R"(1 / (1 + exp(-x)) of each element.

>>> import anello
>>> anello.sigmoid(anello.tensor([0.0])).tolist()
[0.5]
)"},
    {"relu", &relu, R"(max(x, 0) of each element. NaN stays NaN; the gradient at 0 is 0.

>>> import anello
>>> anello.relu(anello.tensor([-1.0, 2.0])).tolist()
[0.0, 2.0]
)"},
    {"silu", &silu, R"(x * sigmoid(x) of each element.

>>> import anello
>>> anello.silu(anello.tensor([0.0])).tolist()
[0.0]
)"},
};

void bind_activations(Definer& define) {
  for (const Row& row : kActivations) define.both(row.name, row.function, row.doc);
  define.both("leaky_relu", &leaky_relu, py::arg("negative_slope") = 0.01,
              R"(x where x > 0, else negative_slope * x.

>>> import anello
>>> anello.leaky_relu(anello.tensor([-2.0, 3.0]), 0.5).tolist()
[-1.0, 3.0]
)");
  define.both("elu", &elu, py::arg("alpha") = 1.0, R"(x where x > 0, else alpha * (exp(x) - 1).

>>> import anello
>>> anello.elu(anello.tensor([0.0, 3.0])).tolist()
[0.0, 3.0]
)");
  define.both("gelu", &gelu, py::kw_only(), py::arg("approximate") = "none",
              R"(x * Phi(x), Phi the normal distribution's cumulative function. approximate='tanh' uses the tanh formula
(arXiv 1606.08415).

>>> import anello
>>> anello.gelu(anello.tensor([0.0])).tolist()
[0.0]
)");
  define.both("softplus", &softplus, py::arg("beta") = 1.0, R"(log(1 + exp(beta * x)) / beta, without overflow.

>>> import anello
>>> anello.softplus(anello.tensor([1000.0])).tolist()
[1000.0]
)");
}

Tensor clamp_between(const Tensor& x, std::optional<double> low, std::optional<double> high) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  check<ValueError>(low || high, "clamp", "neither min nor max is given");
  return clamp(x, low.value_or(-kInfinity), high.value_or(kInfinity));
}

}  // namespace

void bind_elementwise(py::module_& m) {
  Definer define(m);
  for (const Row& row : kArithmetic) define.both(row.name, row.function, row.doc);
  bind_activations(define);
  define.both(
      "clamp", clamp_between, py::arg("min") = py::none(), py::arg("max") = py::none(),
      R"(Limits each element to [min, max]; either may be left out. NaN stays NaN; the gradient is 1 inside and at the
bounds, else 0.

>>> import anello
>>> anello.clamp(anello.tensor([-2.0, 0.5, 3.0]), min=0, max=1).tolist()
[0.0, 0.5, 1.0]
)");
  define.both(
      "cast", [](const Tensor& x, DType dtype) { return cast(x, dtype); }, py::arg("dtype"),
      R"(The tensor in another dtype (itself when it already is); x.to(dtype) is the same.

>>> import anello
>>> anello.tensor([1.9, -1.9]).cast(anello.int64).tolist()
[1, -1]
)");
}

}  // namespace anello::python
