// Changes in place: straight into the memory, or through apply_in_place() when a gradient is wanted.
// Main entry: add_(), copy_(), fill_(), ... of autograd/functions.h.
#include <anello/autograd/functions/elementwise.h>

#include <cmath>

namespace anello {
namespace {

using detail::wants_gradient;

int kind(DType dtype) { return dtype == bool_ ? 0 : is_floating_point(dtype) ? 2 : 1; }

/// The result of x with a value of dtype `other` must be of x's kind.
void check_kind(const char* op, const Tensor& x, DType other) {
  check<DTypeError>(kind(other) <= kind(x.dtype()), op, "a ", other, " result does not fit in place of ", x.dtype(),
                    ". Hint: cast the tensor first, or use the function that returns a new one.");
}
void check_shape(const char* op, const Tensor& x, const Tensor& y) {
  detail::check_same_device(op, x, y);
  if (x.shape() == y.shape()) return;
  check<ShapeError>(broadcast_shapes(op, x.shape(), y.shape()) == x.shape(), op, "a value of shape ", y.shape(),
                    " does not fit in place of shape ", x.shape(), ".");
}

bool same_window(const Tensor& a, const Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         a.strides() == b.strides();
}
/// y, or a copy where writing x would change elements of y that are still to be read.
Tensor unshared(const Tensor& x, const Tensor& y) {
  return x.storage() == y.storage() && !same_window(x, y) ? copy_as(y, y.dtype()) : y;
}

template <const auto& Tag>
void run_in_place(const Tensor& x, const Tensor& y, double alpha = 1) {
  const Tensor source = unshared(x, y);
  detail::run_binary<Tag>(x, operand(x, x.shape()), operand(source, x.shape()), promote_types(x.dtype(), y.dtype()),
                          alpha);
  x.bump_version();
}
template <const auto& Tag>
void run_in_place(const Tensor& x, Scalar y, double alpha = 1) {
  detail::run_binary<Tag>(x, operand(x, x.shape()), detail::number(), x.dtype(), alpha, y);
  x.bump_version();
}

/// f(old, y) recorded in place. A y that shares memory with x stands for its value before the change.
template <class F>
void record_in_place(const char* op, const Tensor& x, const Tensor& y, bool keep_old, const F& f) {
  if (y.is(x)) return apply_in_place(op, x, true, [&](const Tensor& old) { return f(old, old); }, {});
  const Tensor other = y.storage() == x.storage() ? clone(y) : y;
  apply_in_place(op, x, keep_old, [&](const Tensor& old) { return f(old, other); }, {&other});
}

}  // namespace

void add_(const Tensor& x, const Tensor& y, double alpha) {
  check_kind("add_", x, y.dtype());
  check_kind("add_", x, alpha == std::floor(alpha) ? bool_ : float32);
  check_shape("add_", x, y);
  require_writable("add_", x);
  if (!wants_gradient(x) && !wants_gradient(y)) return run_in_place<kAdd>(x, y, alpha);
  record_in_place("add_", x, y, false, [&](const Tensor& old, const Tensor& value) {
    return add(old, alpha == 1 ? value : mul(value, alpha));
  });
}

void sub_(const Tensor& x, const Tensor& y) {
  check<DTypeError>(x.dtype() != bool_, "sub_", "bool has no subtraction. Hint: use logical_xor.");
  check_kind("sub_", x, y.dtype());
  check_shape("sub_", x, y);
  require_writable("sub_", x);
  if (!wants_gradient(x) && !wants_gradient(y)) return run_in_place<kAdd>(x, y, -1);
  record_in_place("sub_", x, y, false, [](const Tensor& old, const Tensor& value) { return sub(old, value); });
}

void mul_(const Tensor& x, const Tensor& y) {
  check_kind("mul_", x, y.dtype());
  check_shape("mul_", x, y);
  require_writable("mul_", x);
  if (!wants_gradient(x) && !wants_gradient(y)) return run_in_place<kMul>(x, y);
  record_in_place("mul_", x, y, wants_gradient(y),
                  [](const Tensor& old, const Tensor& value) { return mul(old, value); });
}

void div_(const Tensor& x, const Tensor& y) {
  check_kind("div_", x, float32);
  check_shape("div_", x, y);
  require_writable("div_", x);
  if (!wants_gradient(x) && !wants_gradient(y)) return run_in_place<kDiv>(x, y);
  record_in_place("div_", x, y, wants_gradient(y),
                  [](const Tensor& old, const Tensor& value) { return div(old, value); });
}

void add_(const Tensor& x, Scalar y) {
  check_kind("add_", x, y.kind());
  require_writable("add_", x);
  if (!wants_gradient(x)) return run_in_place<kAdd>(x, y);
  apply_in_place("add_", x, false, [y](const Tensor& old) { return add(old, y); }, {});
}

void sub_(const Tensor& x, Scalar y) {
  check<DTypeError>(x.dtype() != bool_, "sub_", "bool has no subtraction. Hint: use logical_xor.");
  check_kind("sub_", x, y.kind());
  require_writable("sub_", x);
  if (!wants_gradient(x)) return run_in_place<kAdd>(x, y, -1);
  apply_in_place("sub_", x, false, [y](const Tensor& old) { return sub(old, y); }, {});
}

void mul_(const Tensor& x, Scalar y) {
  check_kind("mul_", x, y.kind());
  require_writable("mul_", x);
  if (!wants_gradient(x)) return run_in_place<kMul>(x, y);
  apply_in_place("mul_", x, false, [y](const Tensor& old) { return mul(old, y); }, {});
}

void div_(const Tensor& x, Scalar y) {
  check_kind("div_", x, float32);
  require_writable("div_", x);
  if (!wants_gradient(x)) return run_in_place<kDiv>(x, y);
  apply_in_place("div_", x, false, [y](const Tensor& old) { return div(old, y); }, {});
}

namespace {

/// x becomes f(x, y): for operations whose kernels need a result of their own.
template <class F>
void replace_by(const char* op, const Tensor& x, const Tensor& y, const F& f) {
  check_shape(op, x, y);
  require_writable(op, x);
  if (wants_gradient(x) || wants_gradient(y)) {
    check_kind(op, x, y.dtype());
    return record_in_place(op, x, y, true, f);
  }
  const Tensor result = f(x, y);
  check_kind(op, x, result.dtype());
  copy_into(x, result);
}

}  // namespace

void floor_divide_(const Tensor& x, const Tensor& y) {
  replace_by("floor_divide_", x, y, [](const Tensor& a, const Tensor& b) { return floor_divide(a, b); });
}
void remainder_(const Tensor& x, const Tensor& y) {
  replace_by("remainder_", x, y, [](const Tensor& a, const Tensor& b) { return remainder(a, b); });
}
void pow_(const Tensor& x, const Tensor& y) {
  replace_by("pow_", x, y, [](const Tensor& a, const Tensor& b) { return pow(a, b); });
}
void pow_(const Tensor& x, double exponent) {
  check_kind("pow_", x, float32);
  require_writable("pow_", x);
  if (!wants_gradient(x)) return copy_into(x, pow(x, exponent));
  apply_in_place("pow_", x, true, [exponent](const Tensor& old) { return pow(old, exponent); }, {});
}

void copy_(const Tensor& x, const Tensor& src) {
  check_shape("copy_", x, src);
  require_writable("copy_", x);
  if (src.is(x)) return;
  if (!wants_gradient(x) && !wants_gradient(src)) return copy_into(x, unshared(x, src));
  record_in_place("copy_", x, src, false, [](const Tensor& old, const Tensor& value) {
    Tensor result = copy_as(expand_view(value, old.shape()), old.dtype());
    return record("copy_", {&old, &value}, {}, std::move(result), [](Backward& bw) { bw.give(1, bw.grad()); });
  });
}

namespace {

void fill_as(const char* op, const Tensor& x, Scalar value) {
  require_writable(op, x);
  if (kind(value.kind()) > kind(x.dtype()) && value.to_double() != std::floor(value.to_double()))
    check_kind(op, x, float32);
  if (!wants_gradient(x)) return fill(x, value);
  apply_in_place(op, x, false,
                 [op, value](const Tensor& old) {
                   return record(op, {&old}, {}, full(old.shape(), value, old.dtype(), old.device()),
                                 [](Backward& bw) { bw.give(0, detail::zero_gradient(bw, 0)); });
                 },
                 {});
}

}  // namespace

void fill_(const Tensor& x, Scalar value) { fill_as("fill_", x, value); }
void zero_(const Tensor& x) { fill_as("zero_", x, 0); }

}  // namespace anello
