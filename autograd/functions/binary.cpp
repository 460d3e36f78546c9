// Arithmetic of two tensors, or of a tensor and a number.
// Main entry: add(), mul(), div(), pow(), maximum(), ... of autograd/functions.h.
#include <anello/autograd/functions/elementwise.h>

#include <cmath>

namespace anello {
namespace {

using detail::compute_binary;
using detail::kNotSaved;
using detail::wants_gradient;

DType promoted(const Tensor& a, const Tensor& b) { return promote_types(a.dtype(), b.dtype()); }
/// Division leaves the integers.
DType float_type(DType dtype) { return is_floating_point(dtype) ? dtype : float32; }

void check_subtract(DType dtype) {
  check<DTypeError>(dtype != bool_, "sub",
                    "bool has no subtraction. Hint: use logical_xor, or cast to an integer dtype.");
}

/// grad where a condition holds (half of it at ties): the rule of maximum and minimum.
Tensor winner_gradient(const Tensor& grad, const Tensor& tie, const Tensor& wins, const Tensor& is_nan) {
  const Tensor zero = constant(grad, 0);
  return where(tie, grad * 0.5, where(logical_or(wins, is_nan), grad, zero));
}

/// 0 where the exponent is 0, also for a base of 0 whose power -1 is infinite.
Tensor pow_base_gradient(const Tensor& grad, const Tensor& base, const Tensor& exponent) {
  const Tensor slope = exponent * pow(base, exponent - 1);
  return where(eq(exponent, 0), constant(grad, 0), grad * slope);
}
/// 0 where the base is 0 and the exponent is not negative: there the power is constant.
Tensor pow_exponent_gradient(const Tensor& grad, const Tensor& base, const Tensor& exponent, const Tensor& power) {
  const Tensor flat = logical_and(eq(base, 0), ge(exponent, 0));
  const Tensor safe = where(flat, constant(base, 1), base);
  return where(flat, constant(grad, 0), grad * power * log(safe));
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  const DType dtype = promoted(a, b);
  return record("add", {&a, &b}, {}, compute_binary<kAdd>("add", a, b, dtype, dtype), [](Backward& bw) {
    bw.give(0, bw.grad());
    bw.give(1, bw.grad());
  });
}
Tensor add(const Tensor& a, Scalar b) {
  const DType dtype = promote_types(a.dtype(), b);
  return record("add", {&a}, {}, compute_binary<kAdd>(a, b, dtype, dtype), [](Backward& bw) { bw.give(0, bw.grad()); });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  const DType dtype = promoted(a, b);
  check_subtract(dtype);
  return record("sub", {&a, &b}, {}, compute_binary<kAdd>("sub", a, b, dtype, dtype, -1), [](Backward& bw) {
    bw.give(0, bw.grad());
    if (bw.needs(1)) bw.give(1, neg(bw.grad()));
  });
}
Tensor sub(const Tensor& a, Scalar b) {
  const DType dtype = promote_types(a.dtype(), b);
  check_subtract(dtype);
  return record("sub", {&a}, {}, compute_binary<kAdd>(a, b, dtype, dtype, -1),
                [](Backward& bw) { bw.give(0, bw.grad()); });
}
Tensor rsub(Scalar a, const Tensor& b) {
  const DType dtype = promote_types(b.dtype(), a);
  check_subtract(dtype);
  return record("rsub", {&b}, {}, compute_binary<kAdd>(a, b, dtype, dtype, -1),
                [](Backward& bw) { bw.give(0, neg(bw.grad())); });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  const DType dtype = promoted(a, b);
  const Tensor y = compute_binary<kMul>("mul", a, b, dtype, dtype);
  return record("mul", {&a, &b}, {wants_gradient(b) ? &a : &kNotSaved, wants_gradient(a) ? &b : &kNotSaved}, y,
                [](Backward& bw) {
                  if (bw.needs(0)) bw.give(0, mul(bw.grad(), bw.saved(1)));
                  if (bw.needs(1)) bw.give(1, mul(bw.grad(), bw.saved(0)));
                });
}
Tensor mul(const Tensor& a, Scalar b) {
  const DType dtype = promote_types(a.dtype(), b);
  return record("mul", {&a}, {}, compute_binary<kMul>(a, b, dtype, dtype),
                [b](Backward& bw) { bw.give(0, mul(bw.grad(), b)); });
}

Tensor div(const Tensor& a, const Tensor& b) {
  const DType dtype = float_type(promoted(a, b));
  const Tensor y = compute_binary<kDiv>("div", a, b, dtype, dtype);
  // Saves its inputs, never its output: see numerics about in-place changes of a quotient.
  return record("div", {&a, &b}, {wants_gradient(b) ? &a : &kNotSaved, &b}, y, [](Backward& bw) {
    const Tensor divisor = bw.saved(1), da = div(bw.grad(), divisor);
    bw.give(0, da);
    if (bw.needs(1)) bw.give(1, neg(mul(da, div(bw.saved(0), divisor))));
  });
}
Tensor div(const Tensor& a, Scalar b) {
  const DType dtype = float_type(promote_types(a.dtype(), b));
  return record("div", {&a}, {}, compute_binary<kDiv>(a, b, dtype, dtype),
                [b](Backward& bw) { bw.give(0, div(bw.grad(), b)); });
}
Tensor rdiv(Scalar a, const Tensor& b) {
  const DType dtype = float_type(promote_types(b.dtype(), a));
  return record("rdiv", {&b}, {&b}, compute_binary<kDiv>(a, b, dtype, dtype), [a](Backward& bw) {
    const Tensor divisor = bw.saved(0);
    bw.give(0, neg(mul(div(bw.grad(), divisor), rdiv(a, divisor))));
  });
}

Tensor floor_divide(const Tensor& a, const Tensor& b) {
  const DType dtype = promoted(a, b);
  const Tensor y = compute_binary<kFloorDivide>("floor_divide", a, b, dtype, dtype);
  return record("floor_divide", {&a, &b}, {}, y, [](Backward& bw) {
    for (int i = 0; i < 2; ++i)
      if (bw.needs(i)) bw.give(i, detail::zero_gradient(bw, i));
  });
}
Tensor floor_divide(const Tensor& a, Scalar b) {
  const DType dtype = promote_types(a.dtype(), b);
  return record("floor_divide", {&a}, {}, compute_binary<kFloorDivide>(a, b, dtype, dtype),
                [](Backward& bw) { bw.give(0, detail::zero_gradient(bw, 0)); });
}

Tensor remainder(const Tensor& a, const Tensor& b) {
  const DType dtype = promoted(a, b);
  const Tensor y = compute_binary<kRemainder>("remainder", a, b, dtype, dtype);
  const bool keep = wants_gradient(b);
  return record("remainder", {&a, &b}, {keep ? &a : &kNotSaved, keep ? &b : &kNotSaved}, y, [](Backward& bw) {
    bw.give(0, bw.grad());
    if (bw.needs(1)) bw.give(1, neg(mul(bw.grad(), floor_divide(bw.saved(0), bw.saved(1)))));
  });
}
Tensor remainder(const Tensor& a, Scalar b) {
  const DType dtype = promote_types(a.dtype(), b);
  return record("remainder", {&a}, {}, compute_binary<kRemainder>(a, b, dtype, dtype),
                [](Backward& bw) { bw.give(0, bw.grad()); });
}

Tensor pow(const Tensor& a, const Tensor& b) {
  const DType dtype = promoted(a, b);
  const Tensor y = compute_binary<kPow>("pow", a, b, dtype, dtype);
  return record("pow", {&a, &b}, {&a, &b, &y}, y, [](Backward& bw) {
    const Tensor base = bw.saved(0), exponent = bw.saved(1);
    if (bw.needs(0)) bw.give(0, pow_base_gradient(bw.grad(), base, exponent));
    if (bw.needs(1)) bw.give(1, pow_exponent_gradient(bw.grad(), base, exponent, bw.saved(2)));
  });
}
Tensor rpow(Scalar base, const Tensor& exponent) {
  const DType dtype = promote_types(exponent.dtype(), base);
  const Tensor y = compute_binary<kPow>(base, exponent, dtype, dtype);
  return record("rpow", {&exponent}, {&exponent, &y}, y, [base](Backward& bw) {
    const Tensor e = bw.saved(0);
    bw.give(0, pow_exponent_gradient(bw.grad(), constant(e, base.to_double()), e, bw.saved(1)));
  });
}

Tensor maximum(const Tensor& a, const Tensor& b) {
  const DType dtype = promoted(a, b);
  const Tensor y = compute_binary<kMaximum>("maximum", a, b, dtype, dtype);
  return record("maximum", {&a, &b}, {&a, &b}, y, [](Backward& bw) {
    const Tensor left = bw.saved(0), right = bw.saved(1), tie = eq(left, right);
    if (bw.needs(0)) bw.give(0, winner_gradient(bw.grad(), tie, gt(left, right), isnan(left)));
    if (bw.needs(1)) bw.give(1, winner_gradient(bw.grad(), tie, gt(right, left), isnan(right)));
  });
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  const DType dtype = promoted(a, b);
  const Tensor y = compute_binary<kMinimum>("minimum", a, b, dtype, dtype);
  return record("minimum", {&a, &b}, {&a, &b}, y, [](Backward& bw) {
    const Tensor left = bw.saved(0), right = bw.saved(1), tie = eq(left, right);
    if (bw.needs(0)) bw.give(0, winner_gradient(bw.grad(), tie, lt(left, right), isnan(left)));
    if (bw.needs(1)) bw.give(1, winner_gradient(bw.grad(), tie, lt(right, left), isnan(right)));
  });
}
Tensor maximum(const Tensor& a, Scalar b) {
  const DType dtype = promote_types(a.dtype(), b);
  const Tensor y = compute_binary<kMaximum>(a, b, dtype, dtype);
  return record("maximum", {&a}, {&a}, y, [b](Backward& bw) {
    const Tensor left = bw.saved(0);
    bw.give(0, winner_gradient(bw.grad(), eq(left, b), gt(left, b), isnan(left)));
  });
}
Tensor minimum(const Tensor& a, Scalar b) {
  const DType dtype = promote_types(a.dtype(), b);
  const Tensor y = compute_binary<kMinimum>(a, b, dtype, dtype);
  return record("minimum", {&a}, {&a}, y, [b](Backward& bw) {
    const Tensor left = bw.saved(0);
    bw.give(0, winner_gradient(bw.grad(), eq(left, b), lt(left, b), isnan(left)));
  });
}

}  // namespace anello
