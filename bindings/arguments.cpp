// Python values as arguments: numbers, dims, sizes, shapes, dtypes, devices.
// Main entry: to_scalar() and the load() of each pybind11 caster.
#include "python_object.h"
#include "signature.h"

#include <cstring>

namespace anello::python {

bool is_utf8(PyObject* string) {
  if (PyUnicode_AsUTF8AndSize(string, nullptr) != nullptr) return true;
  PyErr_Clear();
  return false;
}

std::string text_of(const char* op, const char* what, py::handle object) {
  check<TypeError>(py::isinstance<py::str>(object), op, what, " is a string, got ", told(object), '.');
  check<ValueError>(is_utf8(object.ptr()), op, what, " cannot be written as UTF-8: ", told(object), '.');
  return object.cast<std::string>();
}

std::string path_of(const char* op, py::handle path) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &bytes) == 0) {
    const bool unfit = PyErr_ExceptionMatches(PyExc_TypeError) != 0;
    if (!unfit && PyErr_ExceptionMatches(PyExc_ValueError) == 0) throw py::error_already_set();
    PyErr_Clear();
    check<TypeError>(!unfit, op, "a file's name is a string, bytes or os.PathLike, got ", told(path), '.');
    fail<ValueError>(op, "a file's name with a NUL, or that the file system cannot encode: ", told(path), '.');
  }
  return py::reinterpret_steal<py::bytes>(bytes);
}

py::object path_object(const std::string& path) {
  PyObject* text = PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size()));
  if (text == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(text);
}

uint64_t seed_from(const char* op, const py::int_& seed) {
  const uint64_t bits = PyLong_AsUnsignedLongLongMask(seed.ptr());
  const bool fits = seed.equal(py::int_(bits)) || seed.equal(py::int_(static_cast<int64_t>(bits)));
  check<ValueError>(fits, op, "the seed ", std::string(py::str(seed)), " does not fit in 64 bits");
  return bits;
}

double number_of(const char* op, const char* what, py::handle object) {
  check<TypeError>(is_number(object.ptr()), op, what, " is a number, got ", told(object), '.');
  return to_scalar(object.ptr()).to_double();
}

bool is_number(PyObject* object) {
  if (PyFloat_Check(object) || PyLong_Check(object)) return true;
  const PyTypeObject* type = Py_TYPE(object);
  if (type->tp_as_number == nullptr || type->tp_as_number->nb_float == nullptr) return false;
  // NumPy's scalars convert to float as arrays do, but cannot be assigned into.
  const bool array_like = type->tp_as_mapping != nullptr && type->tp_as_mapping->mp_ass_subscript != nullptr;
  return !array_like && !PyComplex_Check(object) && !is_tensor(object);
}

Scalar to_scalar(PyObject* object) {
  if (PyFloat_Check(object)) return Scalar(PyFloat_AS_DOUBLE(object));
  if (PyBool_Check(object)) return Scalar(object == Py_True);
  const char* type = Py_TYPE(object)->tp_name;
  if (std::strcmp(type, "numpy.bool") == 0 || std::strcmp(type, "numpy.bool_") == 0)
    return Scalar(PyObject_IsTrue(object) == 1);
  if (PyIndex_Check(object)) {
    const py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(object));
    if (!index) throw py::error_already_set();
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    check<ValueError>(overflow == 0, "number", "the integer ", std::string(py::str(index)), " does not fit in 64 bits");
    return Scalar(value);
  }
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return Scalar(value);
}

namespace {

/// An integer of Python or NumPy, or an integer tensor of one element; not a float, not a bool.
bool load_integer(py::handle source, int64_t& value) {
  PyObject* object = source.ptr();
  if (PyFloat_Check(object) || PyBool_Check(object) || !PyIndex_Check(object)) return false;
  const py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(object));
  if (!index) {
    PyErr_Clear();
    return false;
  }
  int overflow = 0;
  value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  return overflow == 0;
}

template <class Out>
bool load_integers(py::handle source, Out& out) {
  if (!PyList_Check(source.ptr()) && !PyTuple_Check(source.ptr())) return false;
  for (const py::handle item : py::reinterpret_borrow<py::sequence>(source)) {
    int64_t value = 0;
    if (!load_integer(item, value)) return false;
    out.push_back(value);
  }
  return true;
}

}  // namespace

Shape shape_from_args(const char* op, const py::args& args) {
  Shape shape;
  const bool fine =
      args.size() == 1 && !PyIndex_Check(args[0].ptr()) ? load_integers(args[0], shape) : load_integers(args, shape);
  check<DTypeError>(fine, op, "sizes are integers, or one tuple of them, got ", std::string(py::repr(args)));
  return shape;
}

}  // namespace anello::python

namespace pybind11::detail {

namespace ap = anello::python;

bool type_caster<ap::Operand>::load(handle source, bool) {
  if (ap::is_tensor(source.ptr())) {
    value.tensor = ap::tensor_of(source.ptr());
    anello::check(value.is_tensor(), "tensor", "the tensor is undefined");
    return true;
  }
  if (!ap::is_number(source.ptr())) return false;
  value.scalar = ap::to_scalar(source.ptr());
  return true;
}

bool type_caster<ap::Dims>::load(handle source, bool) {
  value.values.clear();
  if (source.is_none()) return true;
  int64_t dim = 0;
  if (ap::load_integer(source, dim)) {
    value.values = {dim};
    return true;
  }
  return ap::load_integers(source, value.values);
}

bool type_caster<ap::PairArg>::load(handle source, bool) {
  int64_t both = 0;
  if (ap::load_integer(source, both)) {
    value.values = {both, both};
    return true;
  }
  std::vector<int64_t> list;
  if (!ap::load_integers(source, list)) return false;
  if (list.size() == 1) list.push_back(list[0]);
  if (list.size() != 2) return false;
  value.values = {list[0], list[1]};
  return true;
}

bool type_caster<anello::Shape>::load(handle source, bool) {
  value = anello::Shape();
  int64_t size = 0;
  if (ap::load_integer(source, size)) {
    value.push_back(size);
    return true;
  }
  return ap::load_integers(source, value);
}

handle type_caster<anello::Shape>::cast(const anello::Shape& shape, return_value_policy, handle) {
  tuple sizes(static_cast<size_t>(shape.size()));
  for (int i = 0; i < shape.size(); ++i) sizes[static_cast<size_t>(i)] = int_(shape[i]);
  return sizes.release();
}

}  // namespace pybind11::detail
