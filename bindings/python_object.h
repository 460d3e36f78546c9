// What every binding source needs: the Python object of a Tensor, argument types, the GIL, errors.
// Main entry: wrap(), tensor_of(), and the pybind11 casters for Tensor, DType, Device, Scalar and friends.
#pragma once

#include <anello/core/dtype.h>
#include <anello/core/error.h>
#include <anello/core/tensor.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace anello::python {

namespace py = pybind11;

// --- The Python type of tensors ---

/// A Tensor handle as a Python object. While it lives there is one object a TensorImpl (TensorImpl::host), so that
/// `is`, subclasses and weak references mean what they say.
struct TensorObject {
  PyObject ob_base;
  Tensor tensor;
  PyObject* weak_references;
};
extern PyTypeObject* tensor_type;     ///< anello.Tensor
extern PyTypeObject* parameter_type;  ///< anello.nn.Parameter, a subclass

inline bool is_tensor(PyObject* object) {
  return Py_TYPE(object) == tensor_type || PyType_IsSubtype(Py_TYPE(object), tensor_type) != 0;
}
/// The handle in an object of which is_tensor() is true.
inline const Tensor& tensor_of(PyObject* object) { return reinterpret_cast<TensorObject*>(object)->tensor; }
/// A new reference to the tensor's object, made when there is none; None for an undefined tensor. Null with a Python
/// error set when there is no memory.
PyObject* wrap(const Tensor& tensor);
/// The same as an object of `type` (a subclass of Tensor); an existing plain object becomes one of that type.
PyObject* wrap_as(PyTypeObject* type, const Tensor& tensor);
/// wrap_as(parameter_type).
py::object wrap_parameter(const Tensor& tensor);

// --- The GIL ---

/// Blocks this thread for good. When the interpreter goes, Python ends other threads that ask for the GIL by
/// pthread_exit(), which must not unwind C++ frames; the process is about to end anyway.
[[noreturn]] void hang() noexcept;

/// Gives the GIL away for a scope. For call_guard<> and for long work in hand-written slots.
class GilRelease {
 public:
  explicit GilRelease(bool wanted = true) : state_(wanted ? PyEval_SaveThread() : nullptr) {}
  ~GilRelease() {
    if (state_ == nullptr) return;
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      hang();
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

/// Takes the GIL for a scope, in any thread.
class GilAcquire {
 public:
  GilAcquire() {
    try {
      state_ = PyGILState_Ensure();
    } catch (...) {
      hang();
    }
  }
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};
using NoGil = py::call_guard<GilRelease>;

/// Work on fewer elements than this keeps the GIL: giving it away costs more than the work.
inline constexpr int64_t kGilElements = 4096;

/// Lets a Python reference go, from any thread: at once where this thread holds the GIL, else soon after from the main
/// thread. Never waits for the GIL (a thread that waited could be one that the GIL's holder is waiting for), and does
/// nothing once the interpreter is gone.
void release_soon(PyObject* object) noexcept;

/// A Python object that C++ code may copy and let go on any thread, with or without the GIL.
class SharedObject {
 public:
  SharedObject() = default;
  explicit SharedObject(const py::object& object)
      : object_(object.inc_ref().ptr(), [](PyObject* p) { release_soon(p); }) {}
  /// Needs the GIL.
  py::object get() const { return py::reinterpret_borrow<py::object>(object_.get()); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  std::shared_ptr<PyObject> object_;
};

/// Number of Ctrl-C that stopped a computation: worker threads that run Python code for it compare and give up too.
std::atomic<uint64_t>& interrupt_count();
/// Makes Ctrl-C an exception in long C++ work.
void install_interrupt_check();

// --- Errors ---

/// An argument of a type that does not fit (Python: TypeError).
class TypeError : public Error {
 public:
  using Error::Error;
};

/// Sets the Python error for the C++ exception being handled.
void set_error_from_exception() noexcept;
/// Runs f, which returns a new reference; turns an exception into a Python error and null.
template <class F>
PyObject* guarded(const F& f) noexcept {
  try {
    return f();
  } catch (...) {
    set_error_from_exception();
    return nullptr;
  }
}

// --- Arguments ---

/// False for a string with lone surrogates.
bool is_utf8(PyObject* string);
/// The text of a string. Raises TypeError with what it is the `what` of for another object, ValueError for a string
/// that UTF-8 cannot hold.
std::string text_of(const char* op, const char* what, py::handle object);
/// A file's name: a string, bytes or os.PathLike, as the system takes it. Raises TypeError for anything else,
/// ValueError for a name with a NUL, after which the system would stop reading.
std::string path_of(const char* op, py::handle path);
/// A value as an error tells it: "the int 5", "the str 'x'", "a list", "None".
std::string told(py::handle value);
/// True when a loop may run over it.
inline bool is_iterable(py::handle object) {
  return PySequence_Check(object.ptr()) != 0 || Py_TYPE(object.ptr())->tp_iter != nullptr;
}
/// A file's name as a string of Python, whatever bytes it has.
py::object path_object(const std::string& path);
/// A seed of at most 64 bits; a negative one counts as seed + 2^64. Raises ValueError for a longer one.
uint64_t seed_from(const char* op, const py::int_& seed);
/// The number as a double. Raises TypeError for anything else.
double number_of(const char* op, const char* what, py::handle object);

/// True for a Python or NumPy number (and not for an array or tensor).
bool is_number(PyObject* object);
/// The number as a weak scalar. Raises ValueError for an integer beyond 64 bits.
Scalar to_scalar(PyObject* object);
DType to_dtype(py::handle object);
/// The Python object of a dtype (`anello.float32`): one each.
py::object dtype_object(DType dtype);

/// A tensor or a number: the right side of `x + y`.
struct Operand {
  Tensor tensor;  ///< undefined: it is the number
  Scalar scalar = 0;
  bool is_tensor() const { return tensor.defined(); }
};
/// `dim`: None (all), an integer, or a sequence of them.
struct Dims {
  std::vector<int64_t> values;
};
/// A size for height and width: one integer or two.
struct PairArg {
  std::array<int64_t, 2> values{};
};
/// `f(2, 3)` or `f((2, 3))`. Raises TypeError with the function's name for anything else.
Shape shape_from_args(const char* op, const py::args& args);

}  // namespace anello::python

namespace pybind11::detail {

template <>
struct type_caster<anello::Tensor> {
  PYBIND11_TYPE_CASTER(anello::Tensor, const_name("anello.Tensor"));
  bool load(handle source, bool) {
    if (!anello::python::is_tensor(source.ptr())) return false;
    value = anello::python::tensor_of(source.ptr());
    return true;
  }
  static handle cast(const anello::Tensor& tensor, return_value_policy, handle) {
    handle object = anello::python::wrap(tensor);
    if (!object) throw error_already_set();
    return object;
  }
};

template <>
struct type_caster<anello::DType> {
  PYBIND11_TYPE_CASTER(anello::DType, const_name("anello.dtype"));
  bool load(handle source, bool);
  static handle cast(anello::DType dtype, return_value_policy, handle) {
    return anello::python::dtype_object(dtype).release();
  }
};

template <>
struct type_caster<anello::Device> {
  PYBIND11_TYPE_CASTER(anello::Device, const_name("anello.device"));
  bool load(handle source, bool);
  static handle cast(anello::Device device, return_value_policy, handle);
};

template <>
struct type_caster<anello::Scalar> {
 public:
  static constexpr auto name = const_name("float");
  template <class T>
  using cast_op_type = anello::Scalar;
  explicit operator anello::Scalar() const { return value; }
  bool load(handle source, bool) {
    if (!anello::python::is_number(source.ptr())) return false;
    value = anello::python::to_scalar(source.ptr());
    return true;
  }

 private:
  anello::Scalar value = 0;
};

template <>
struct type_caster<anello::python::Operand> {
  PYBIND11_TYPE_CASTER(anello::python::Operand, const_name("anello.Tensor | float"));
  bool load(handle source, bool);
};
template <>
struct type_caster<anello::python::Dims> {
  PYBIND11_TYPE_CASTER(anello::python::Dims, const_name("int | tuple[int, ...] | None"));
  bool load(handle source, bool);
};
template <>
struct type_caster<anello::python::PairArg> {
  PYBIND11_TYPE_CASTER(anello::python::PairArg, const_name("int | tuple[int, int]"));
  bool load(handle source, bool);
  static handle cast(const anello::python::PairArg& pair, return_value_policy, handle) {
    return make_tuple(pair.values[0], pair.values[1]).release();
  }
};
/// An argument may be one integer.
template <>
struct type_caster<anello::Shape> {
  PYBIND11_TYPE_CASTER(anello::Shape, const_name("tuple[int, ...]"));
  bool load(handle source, bool);
  static handle cast(const anello::Shape& shape, return_value_policy, handle);
};

}  // namespace pybind11::detail
