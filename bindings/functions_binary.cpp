// Elementwise functions of two operands, comparisons, logic, and in-place changes.
// Main entry: bind_binary(), bind_in_place(). The operators + - * / are in numbers.cpp.
#include "bindings.h"

#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>
#include <anello/core/random.h>

#include <limits>

namespace anello::python {
namespace {

using TensorTensor = Tensor (*)(const Tensor&, const Tensor&);
using TensorNumber = Tensor (*)(const Tensor&, Scalar);

struct Row {
  const char* name;
  TensorTensor both;
  TensorNumber number;
  const char* doc;
};

Tensor power_number(const Tensor& x, Scalar exponent) {
  if (is_floating_point(x.dtype()) || exponent.kind() == float64) return pow(x, exponent.to_double());
  return pow(x, full({}, exponent, promote_types(x.dtype(), exponent)));
}

const Row kRows[] = {
    {"mul", &mul, &mul, R"(input * other.

>>> import anello
>>> anello.mul(anello.tensor([1, 2]), 3).tolist()
[3, 6]
)"},
    {"div", &div, &div, R"(input / other; of integers it is float32.

>>> import anello
>>> anello.div(anello.tensor([1, 2]), 2).tolist()
[0.5, 1.0]
)"},
    {"floor_divide", &floor_divide, &floor_divide,
     R"(The quotient rounded down, as Python's //. Raises ValueError for an integer divided by 0; the gradient is 0.

>>> import anello
>>> anello.floor_divide(anello.tensor([7, -7]), 2).tolist()
[3, -4]
)"},
    {"remainder", &remainder, &remainder, R"(What is left of a division, with the sign of `other`, as Python's %.

>>> import anello
>>> anello.remainder(anello.tensor([7, -7]), 4).tolist()
[3, 1]
)"},
    {"maximum", &maximum, &maximum,
     R"(The larger of two elements. NaN wins; at a tie the gradient is shared half and half.

>>> import anello
>>> anello.maximum(anello.tensor([1, 5]), anello.tensor([3, 2])).tolist()
[3, 5]
)"},
    {"minimum", &minimum, &minimum,
     R"(The smaller of two elements. NaN wins; at a tie the gradient is shared half and half.

>>> import anello
>>> anello.minimum(anello.tensor([1, 5]), anello.tensor([3, 2])).tolist()
[1, 2]
)"},
    {"eq", &eq, &eq, R"(Where input == other (bool).

>>> import anello
>>> anello.eq(anello.tensor([1, 2]), 2).tolist()
[False, True]
)"},
    {"ne", &ne, &ne, R"(Where input != other (bool).

>>> import anello
>>> anello.ne(anello.tensor([1, 2]), 2).tolist()
[True, False]
)"},
    {"lt", &lt, &lt, R"(Where input < other (bool).

>>> import anello
>>> anello.lt(anello.tensor([1, 2]), 2).tolist()
[True, False]
)"},
    {"le", &le, &le, R"(Where input <= other (bool).

>>> import anello
>>> anello.le(anello.tensor([1, 2]), 1).tolist()
[True, False]
)"},
    {"gt", &gt, &gt, R"(Where input > other (bool).

>>> import anello
>>> anello.gt(anello.tensor([1, 2]), 1).tolist()
[False, True]
)"},
    {"ge", &ge, &ge, R"(Where input >= other (bool).

>>> import anello
>>> anello.ge(anello.tensor([1, 2]), 2).tolist()
[False, True]
)"},
};

const struct {
  const char* name;
  TensorTensor function;
  const char* doc;
} kLogic[] = {
    {"logical_and", &logical_and, R"(True where both are not 0 (bool).

>>> import anello
>>> anello.logical_and(anello.tensor([0, 1]), anello.tensor([1, 1])).tolist()
[False, True]
)"},
    {"logical_or", &logical_or, R"(True where one is not 0 (bool).

>>> import anello
>>> anello.logical_or(anello.tensor([0, 0]), anello.tensor([1, 0])).tolist()
[True, False]
)"},
    {"logical_xor", &logical_xor, R"(True where exactly one is not 0 (bool).

>>> import anello
>>> anello.logical_xor(anello.tensor([1, 1]), anello.tensor([1, 0])).tolist()
[False, True]
)"},
};

Tensor scaled(const Tensor& other, double alpha) { return alpha == 1 ? other : mul(other, alpha); }

Tensor as_tensor(const Operand& operand, const Tensor& like) {
  return operand.is_tensor() ? operand.tensor
                             : full({}, operand.scalar, promote_types(like.dtype(), operand.scalar), like.device());
}

/// where() with numbers on either side: the other side's dtype decides, as it does for operators.
Tensor where_any(const Tensor& condition, const Operand& a, const Operand& b) {
  if (!a.is_tensor() && !b.is_tensor()) {
    const bool floats = a.scalar.kind() == float64 || b.scalar.kind() == float64;
    const DType dtype = floats ? float32 : std::max(a.scalar.kind(), b.scalar.kind());
    return where(condition, full({}, a.scalar, dtype), full({}, b.scalar, dtype));
  }
  return where(condition, as_tensor(a, b.tensor.defined() ? b.tensor : a.tensor),
               as_tensor(b, a.tensor.defined() ? a.tensor : b.tensor));
}

void bind_add_sub(Definer& define) {
  define.both(
      "add",
      [](const Tensor& x, const Operand& y, double alpha) {
        if (y.is_tensor()) return add(x, scaled(y.tensor, alpha));
        return alpha == 1 ? add(x, y.scalar) : add(x, alpha * y.scalar.to_double());
      },
      py::arg("other"), py::kw_only(), py::arg("alpha") = 1.0, R"(input + alpha * other.

>>> import anello
>>> anello.add(anello.tensor([1.0, 2.0]), 10, alpha=0.5).tolist()
[6.0, 7.0]
)");
  define.both(
      "sub",
      [](const Tensor& x, const Operand& y, double alpha) {
        if (y.is_tensor()) return sub(x, scaled(y.tensor, alpha));
        return alpha == 1 ? sub(x, y.scalar) : sub(x, alpha * y.scalar.to_double());
      },
      py::arg("other"), py::kw_only(), py::arg("alpha") = 1.0, R"(input - alpha * other.

>>> import anello
>>> anello.sub(anello.tensor([1, 2]), 1).tolist()
[0, 1]
)");
}

bool all_close(const Tensor& x, const Tensor& y, double rtol, double atol, bool equal_nan) {
  const NoGradGuard no_grad;
  const Tensor a = is_floating_point(x.dtype()) ? x : cast(x, float64),
               b = is_floating_point(y.dtype()) ? y : cast(y, float64);
  // Infinities are close to themselves only; NaN to nothing, unless asked.
  Tensor close = logical_or(eq(a, b), le(abs(sub(a, b)), add(mul(abs(b), rtol), atol)));
  close = logical_and(close, logical_or(eq(a, b), lt(abs(b), std::numeric_limits<double>::infinity())));
  if (equal_nan) close = logical_or(close, logical_and(isnan(a), isnan(b)));
  return all(close).item<int64_t>() != 0;
}

// --- In place ---

template <class F>
py::object changed(const py::object& self, const F& f) {
  const Tensor& x = tensor_of(self.ptr());
  {
    const GilRelease release(x.numel() >= kGilElements);
    f(x);
  }
  return self;
}

/// Random values have no gradient: a tensor that wants one is changed under no_grad() only.
void check_unrecorded(const char* op, const Tensor& x) {
  check<Error>(
      !(is_grad_enabled() && x.requires_grad()), op,
      "a tensor that takes part in gradients cannot be overwritten while recording. Hint: with anello.no_grad().");
}

}  // namespace

void bind_binary(py::module_& m) {
  Definer define(m);
  bind_add_sub(define);
  for (const Row& row : kRows) {
    define.both(
        row.name,
        [both = row.both, number = row.number](const Tensor& x, const Operand& y) {
          return y.is_tensor() ? both(x, y.tensor) : number(x, y.scalar);
        },
        py::arg("other"), row.doc);
  }
  for (const auto& row : kLogic) define.both(row.name, row.function, py::arg("other"), row.doc);
  define.both(
      "pow",
      [](const Tensor& x, const Operand& e) { return e.is_tensor() ? pow(x, e.tensor) : power_number(x, e.scalar); },
      py::arg("exponent"), R"(input to the power of exponent, a number or a tensor.

>>> import anello
>>> anello.pow(anello.tensor([2.0, 3.0]), 2).tolist()
[4.0, 9.0]
)");
  define.function("where", where_any, py::arg("condition"), py::arg("input"), py::arg("other"),
                  R"(input where condition (bool) is true, else other; all three broadcast.

>>> import anello
>>> anello.where(anello.tensor([True, False]), anello.tensor([1, 2]), 0).tolist()
[1, 0]
)");
  define.both("allclose", all_close, py::arg("other"), py::arg("rtol") = 1e-5, py::arg("atol") = 1e-8,
              py::arg("equal_nan") = false,
              R"(True when |input - other| <= atol + rtol |other| everywhere (a Python bool).

>>> import anello
>>> anello.allclose(anello.tensor([1.0]), anello.tensor([1.000001]))
True
)");
  define.both(
      "equal",
      [](const Tensor& x, const Tensor& y) { return x.shape() == y.shape() && all(eq(x, y)).item<int64_t>() != 0; },
      py::arg("other"), R"(True when shapes and all elements are equal (a Python bool).

>>> import anello
>>> anello.equal(anello.tensor([1, 2]), anello.tensor([1, 2]))
True
)");
  define.both(
      "masked_fill",
      [](const Tensor& x, const Tensor& mask, Scalar value) {
        return where(mask, full({}, value, x.dtype(), x.device()), x);
      },
      py::arg("mask"), py::arg("value"), R"(`value` where mask (bool) is true, else input.

>>> import anello
>>> anello.tensor([1, 2]).masked_fill(anello.tensor([True, False]), 9).tolist()
[9, 2]
)");
}

void bind_in_place(py::module_& m) {
  Definer define(m);
  define.method(
      "add_",
      [](const py::object& self, const Operand& y, double alpha) {
        return changed(self, [&](const Tensor& x) {
          if (y.is_tensor()) return add_(x, y.tensor, alpha);
          return alpha == 1 ? add_(x, y.scalar) : add_(x, Scalar(alpha * y.scalar.to_double()));
        });
      },
      py::arg("other"), py::kw_only(), py::arg("alpha") = 1.0,
      R"(Adds alpha * other in place and returns the tensor. Its dtype stays.

>>> import anello
>>> anello.tensor([1.0]).add_(2).tolist()
[3.0]
)");
  const auto bind_pair = [&](const char* name, void (*tensor)(const Tensor&, const Tensor&),
                             void (*number)(const Tensor&, Scalar), const char* doc) {
    define.method(
        name,
        [tensor, number](const py::object& self, const Operand& y) {
          return changed(self, [&](const Tensor& x) { y.is_tensor() ? tensor(x, y.tensor) : number(x, y.scalar); });
        },
        py::arg("other"), doc);
  };
  bind_pair("sub_", &sub_, &sub_, R"(Subtracts other in place and returns the tensor.

>>> import anello
>>> anello.tensor([1.0]).sub_(2).tolist()
[-1.0]
)");
  bind_pair("mul_", &mul_, &mul_, R"(Multiplies by other in place and returns the tensor.

>>> import anello
>>> anello.tensor([3.0]).mul_(2).tolist()
[6.0]
)");
  bind_pair("div_", &div_, &div_, R"(Divides by other in place and returns the tensor.

>>> import anello
>>> anello.tensor([3.0]).div_(2).tolist()
[1.5]
)");
  define.method(
      "copy_",
      [](const py::object& self, const Tensor& source) {
        return changed(self, [&](const Tensor& x) { copy_(x, source); });
      },
      py::arg("src"),
      R"(Copies the values of src (which broadcasts) into the tensor, converting to its dtype, and returns it.

>>> import anello
>>> anello.zeros(2).copy_(anello.tensor(3)).tolist()
[3.0, 3.0]
)");
  define.method(
      "fill_",
      [](const py::object& self, Scalar value) { return changed(self, [&](const Tensor& x) { fill_(x, value); }); },
      py::arg("value"), R"(Sets every element and returns the tensor.

>>> import anello
>>> anello.zeros(2).fill_(7).tolist()
[7.0, 7.0]
)");
  define.method(
      "zero_", [](const py::object& self) { return changed(self, [](const Tensor& x) { zero_(x); }); },
      R"(Sets every element to 0 and returns the tensor.

>>> import anello
>>> anello.ones(2).zero_().tolist()
[0.0, 0.0]
)");
  define.method(
      "uniform_",
      [](const py::object& self, double low, double high) {
        check_unrecorded("uniform_", tensor_of(self.ptr()));
        return changed(self, [&](const Tensor& x) { uniform_into(x, low, high); });
      },
      py::arg("low") = 0.0, py::arg("high") = 1.0,
      R"(Draws every element uniformly from [low, high) and returns the tensor.

>>> import anello
>>> x = anello.zeros(100).uniform_(2, 3)
>>> bool(2 <= x.min() and x.max() < 3)
True
)");
  define.method(
      "normal_",
      [](const py::object& self, double mean, double std) {
        check_unrecorded("normal_", tensor_of(self.ptr()));
        return changed(self, [&](const Tensor& x) { normal_into(x, mean, std); });
      },
      py::arg("mean") = 0.0, py::arg("std") = 1.0,
      R"(Draws every element from a normal distribution and returns the tensor.

>>> import anello
>>> anello.zeros(2).normal_(mean=5, std=0).tolist()
[5.0, 5.0]
)");
}

}  // namespace anello::python
