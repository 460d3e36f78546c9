// Operators of tensors in Python: written as type slots, because `y * w` on a few elements should cost about a
// microsecond. Main entry: add_number_slots().
#include "tensor_type.h"

#include <anello/autograd/functions.h>

namespace anello::python {
namespace {

bool is_operand(PyObject* object) { return is_tensor(object) || is_number(object); }

/// Arrays get a hint; anything else gets Python's own answer (the other operand's turn, then TypeError).
PyObject* not_an_operand(PyObject* a, PyObject* b) {
  PyObject* other = is_tensor(a) ? b : a;
  if (PyObject_CheckBuffer(other) && !PyBytes_Check(other)) {
    PyErr_Format(PyExc_TypeError,
                 "a tensor and a %s do not mix. Hint: anello.from_numpy(array) or anello.tensor(array).",
                 Py_TYPE(other)->tp_name);
    return nullptr;
  }
  Py_RETURN_NOTIMPLEMENTED;
}

/// Runs f, without the GIL when there is enough to do, and wraps its tensor.
template <class F>
PyObject* run(int64_t elements, const F& f) {
  return guarded([&]() -> PyObject* {
    Tensor result;
    {
      const GilRelease release(elements >= kGilElements);
      result = f();
    }
    return wrap(result);
  });
}

using TensorTensor = Tensor (*)(const Tensor&, const Tensor&);
using TensorNumber = Tensor (*)(const Tensor&, Scalar);
using NumberTensor = Tensor (*)(Scalar, const Tensor&);

/// One slot serves `tensor op tensor`, `tensor op number` and `number op tensor`.
template <TensorTensor kBoth, TensorNumber kRight, NumberTensor kLeft>
PyObject* binary(PyObject* a, PyObject* b) {
  if (is_tensor(a)) {
    const Tensor& x = tensor_of(a);
    if (is_tensor(b)) {
      const Tensor& y = tensor_of(b);
      if (!x.defined() || !y.defined()) return run(0, [&] { return kBoth(x, y); });
      return run(std::max(x.numel(), y.numel()), [&] { return kBoth(x, y); });
    }
    if (is_number(b)) {
      return guarded([&] {
        const Scalar y = to_scalar(b);
        return run(x.numel(), [&] { return kRight(x, y); });
      });
    }
  } else if (is_number(a)) {
    return guarded([&] {
      const Scalar x = to_scalar(a);
      const Tensor& y = tensor_of(b);
      return run(y.numel(), [&] { return kLeft(x, y); });
    });
  }
  return not_an_operand(a, b);
}

Tensor reflected_add(Scalar a, const Tensor& b) { return add(b, a); }
Tensor reflected_mul(Scalar a, const Tensor& b) { return mul(b, a); }
Tensor as_tensor(Scalar value, const Tensor& like) {
  return full({}, value, promote_types(like.dtype(), value), like.device());
}
Tensor reflected_floor_divide(Scalar a, const Tensor& b) { return floor_divide(as_tensor(a, b), b); }
Tensor reflected_remainder(Scalar a, const Tensor& b) { return remainder(as_tensor(a, b), b); }

Tensor power_number(const Tensor& x, Scalar exponent) {
  const bool integers = !is_floating_point(x.dtype()) && exponent.kind() != float64;
  return integers ? pow(x, as_tensor(exponent, x)) : pow(x, exponent.to_double());
}

PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) {
    PyErr_SetString(PyExc_TypeError, "[pow] there is no pow() of tensors with a modulus");
    return nullptr;
  }
  return binary<&pow, &power_number, &rpow>(a, b);
}

PyObject* matrix_multiply(PyObject* a, PyObject* b) {
  if (!is_tensor(a) || !is_tensor(b)) return not_an_operand(a, b);
  return run(kGilElements, [&] { return matmul(tensor_of(a), tensor_of(b)); });
}

using InPlaceTensor = void (*)(const Tensor&, const Tensor&);
using InPlaceNumber = void (*)(const Tensor&, Scalar);

template <InPlaceTensor kTensor, InPlaceNumber kNumber>
PyObject* in_place(PyObject* self, PyObject* other) {
  if (!is_operand(other)) return not_an_operand(self, other);
  return guarded([&]() -> PyObject* {
    const Tensor& x = tensor_of(self);
    const bool long_work = x.numel() >= kGilElements;
    if (is_tensor(other)) {
      const GilRelease release(long_work);
      kTensor(x, tensor_of(other));
    } else {
      const Scalar value = to_scalar(other);
      const GilRelease release(long_work);
      kNumber(x, value);
    }
    Py_INCREF(self);
    return self;
  });
}
void add_in_place(const Tensor& x, const Tensor& y) { add_(x, y); }
void floor_divide_number(const Tensor& x, Scalar y) { floor_divide_(x, as_tensor(y, x)); }
void remainder_number(const Tensor& x, Scalar y) { remainder_(x, as_tensor(y, x)); }
void pow_number(const Tensor& x, Scalar exponent) {
  if (is_floating_point(x.dtype())) return pow_(x, exponent.to_double());
  pow_(x, as_tensor(exponent, x));
}
PyObject* in_place_power(PyObject* self, PyObject* other, PyObject* /*modulus: there is no syntax for it*/) {
  return in_place<&pow_, &pow_number>(self, other);
}

template <Tensor (*kFunction)(const Tensor&)>
PyObject* unary(PyObject* self) {
  return guarded([&] {
    const Tensor& x = tensor_of(self);
    return run(x.numel(), [&] { return kFunction(x); });
  });
}
PyObject* positive(PyObject* self) {
  Py_INCREF(self);
  return self;
}

/// &, |, ^ and ~ are logic on bool tensors; there is no integer bit arithmetic yet, and an error is better than a
/// surprise.
void check_bool(const char* op, const Tensor& x) {
  check<DTypeError>(x.dtype() == bool_, op, "takes bool tensors, got ", x.dtype(),
                    ". Hint: compare first (x != 0), or use logical_and() and friends.");
}
template <TensorTensor kFunction>
PyObject* logic(const char* op, PyObject* a, PyObject* b) {
  const bool booleans = (is_tensor(a) || PyBool_Check(a)) && (is_tensor(b) || PyBool_Check(b));
  if (!booleans) return not_an_operand(a, b);
  return guarded([&] {
    const auto operand = [&](PyObject* object) {
      return is_tensor(object) ? tensor_of(object) : full({}, object == Py_True, bool_);
    };
    const Tensor x = operand(a), y = operand(b);
    check_bool(op, x);
    check_bool(op, y);
    return run(std::max(x.numel(), y.numel()), [&] { return kFunction(x, y); });
  });
}
PyObject* and_slot(PyObject* a, PyObject* b) { return logic<&logical_and>("&", a, b); }
PyObject* or_slot(PyObject* a, PyObject* b) { return logic<&logical_or>("|", a, b); }
PyObject* xor_slot(PyObject* a, PyObject* b) { return logic<&logical_xor>("^", a, b); }
PyObject* invert(PyObject* self) {
  return guarded([&] {
    check_bool("~", tensor_of(self));
    return run(tensor_of(self).numel(), [&] { return logical_not(tensor_of(self)); });
  });
}

template <TensorTensor kBoth, TensorNumber kRight>
PyObject* compare(PyObject* a, PyObject* b) {
  return guarded([&]() -> PyObject* {
    const Tensor& x = tensor_of(a);
    if (is_tensor(b)) {
      const Tensor& y = tensor_of(b);
      return run(std::max(x.numel(), y.numel()), [&] { return kBoth(x, y); });
    }
    const Scalar y = to_scalar(b);
    return run(x.numel(), [&] { return kRight(x, y); });
  });
}

PyObject* rich_compare(PyObject* a, PyObject* b, int op) {
  if (!is_operand(b)) return not_an_operand(a, b);
  switch (op) {
    case Py_LT:
      return compare<&lt, &lt>(a, b);
    case Py_LE:
      return compare<&le, &le>(a, b);
    case Py_EQ:
      return compare<&eq, &eq>(a, b);
    case Py_NE:
      return compare<&ne, &ne>(a, b);
    case Py_GT:
      return compare<&gt, &gt>(a, b);
    default:
      return compare<&ge, &ge>(a, b);
  }
}

int truth(PyObject* self) {
  try {
    const Tensor& x = tensor_of(self);
    check<ShapeError>(x.numel() == 1, "bool", "the truth of a tensor of shape ", x.shape(),
                      " is ambiguous. Hint: use any() or all().");
    return is_floating_point(x.dtype()) ? x.item<double>() != 0 : x.item<int64_t>() != 0;
  } catch (...) {
    set_error_from_exception();
    return -1;
  }
}

PyObject* to_float(PyObject* self) {
  return guarded([&] { return PyFloat_FromDouble(tensor_of(self).item<double>()); });
}
PyObject* to_int(PyObject* self) {
  return guarded([&]() -> PyObject* {
    const Tensor& x = tensor_of(self);
    if (is_floating_point(x.dtype())) return PyLong_FromDouble(x.item<double>());
    return PyLong_FromLongLong(x.item<int64_t>());
  });
}
PyObject* to_index(PyObject* self) {
  return guarded([&]() -> PyObject* {
    const Tensor& x = tensor_of(self);
    check<DTypeError>(!is_floating_point(x.dtype()) && x.numel() == 1, "index",
                      "only an integer tensor of one element is an index, got ", x.dtype(), " of shape ", x.shape(),
                      ".");
    return PyLong_FromLongLong(x.item<int64_t>());
  });
}

template <class F>
PyType_Slot slot(int id, F function) {
  return {id, reinterpret_cast<void*>(function)};
}

}  // namespace

void add_number_slots(std::vector<PyType_Slot>& slots) {
  const PyType_Slot list[] = {
      slot(Py_nb_add, binary<&add, &add, &reflected_add>),
      slot(Py_nb_subtract, binary<&sub, &sub, &rsub>),
      slot(Py_nb_multiply, binary<&mul, &mul, &reflected_mul>),
      slot(Py_nb_true_divide, binary<&div, &div, &rdiv>),
      slot(Py_nb_floor_divide, binary<&floor_divide, &floor_divide, &reflected_floor_divide>),
      slot(Py_nb_remainder, binary<&remainder, &remainder, &reflected_remainder>),
      slot(Py_nb_power, power),
      slot(Py_nb_matrix_multiply, matrix_multiply),
      slot(Py_nb_inplace_add, in_place<&add_in_place, &add_>),
      slot(Py_nb_inplace_subtract, in_place<&sub_, &sub_>),
      slot(Py_nb_inplace_multiply, in_place<&mul_, &mul_>),
      slot(Py_nb_inplace_true_divide, in_place<&div_, &div_>),
      slot(Py_nb_inplace_floor_divide, in_place<&floor_divide_, &floor_divide_number>),
      slot(Py_nb_inplace_remainder, in_place<&remainder_, &remainder_number>),
      slot(Py_nb_inplace_power, in_place_power),
      slot(Py_nb_negative, unary<&neg>),
      slot(Py_nb_positive, positive),
      slot(Py_nb_absolute, unary<&abs>),
      slot(Py_nb_invert, invert),
      slot(Py_nb_and, and_slot),
      slot(Py_nb_or, or_slot),
      slot(Py_nb_xor, xor_slot),
      slot(Py_nb_bool, truth),
      slot(Py_nb_int, to_int),
      slot(Py_nb_float, to_float),
      slot(Py_nb_index, to_index),
      slot(Py_tp_richcompare, rich_compare),
  };
  slots.insert(slots.end(), std::begin(list), std::end(list));
}

}  // namespace anello::python
