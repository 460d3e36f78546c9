// Errors of the framework as Python exceptions, each both an anello.Error and the builtin a Python user would catch.
// Main entry: bind_errors(), set_error_from_exception().
#include "bindings.h"

#include <anello/core/error.h>

#include <cstring>
#include <new>

namespace anello::python {
namespace {

struct ErrorTypes {
  PyObject *error, *type, *value, *shape, *index, *dtype, *device, *dist, *io, *memory;
} types{};

PyObject* make_type(py::module_& m, const char* name, const char* doc, const py::tuple& bases) {
  const std::string full = std::string("anello.") + name;
  py::object type =
      py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr));
  if (!type) throw py::error_already_set();
  m.attr(name) = type;
  return type.release().ptr();  // lives as long as the process
}

/// Sets the Python error. What a file or its name holds may be no UTF-8: such bytes are shown as \\xff.
void set_error(PyObject* type, const char* what) {
  const py::object text = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(what, static_cast<Py_ssize_t>(std::strlen(what)), "backslashreplace"));
  if (text) PyErr_SetObject(type, text.ptr());
}

/// Rethrows the exception being handled and sets the matching Python error. False: not one of ours.
bool set_own_error() {
  try {
    throw;
  } catch (const TypeError& e) {
    set_error(types.type, e.what());
  } catch (const ShapeError& e) {
    set_error(types.shape, e.what());
  } catch (const ValueError& e) {
    set_error(types.value, e.what());
  } catch (const IndexError& e) {
    set_error(types.index, e.what());
  } catch (const DTypeError& e) {
    set_error(types.dtype, e.what());
  } catch (const DeviceError& e) {
    set_error(types.device, e.what());
  } catch (const DistError& e) {
    set_error(types.dist, e.what());
  } catch (const IoError& e) {
    set_error(types.io, e.what());
  } catch (const OutOfMemoryError& e) {
    set_error(types.memory, e.what());
  } catch (const Error& e) {
    set_error(types.error, e.what());
  } catch (...) {
    return false;
  }
  return true;
}

}  // namespace

void set_error_from_exception() noexcept {
  try {
    if (set_own_error()) return;
    throw;
  } catch (py::error_already_set& e) {
    e.restore();
  } catch (const py::builtin_exception& e) {
    e.set_error();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    set_error(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
}

void bind_errors(py::module_& m) {
  const auto with = [&](PyObject* builtin) { return py::make_tuple(py::handle(types.error), py::handle(builtin)); };
  types.error =
      make_type(m, "Error", "Base of all errors that anello raises.", py::make_tuple(py::handle(PyExc_RuntimeError)));
  types.type = make_type(m, "TypeError", "An argument of a type that does not fit.", with(PyExc_TypeError));
  types.value = make_type(m, "ValueError", "An argument has a value that cannot be used.", with(PyExc_ValueError));
  types.shape =
      make_type(m, "ShapeError", "Shapes, sizes or dims that do not fit.", py::make_tuple(py::handle(types.value)));
  types.index = make_type(m, "IndexError", "An index outside its dim.", with(PyExc_IndexError));
  types.dtype =
      make_type(m, "DTypeError", "A dtype that is wrong for the operation, or has no kernel.", with(PyExc_TypeError));
  types.device = make_type(m, "DeviceError", "A device that is absent or does not match.",
                           py::make_tuple(py::handle(types.error)));
  types.dist = make_type(m, "DistError", "A failure between ranks.", py::make_tuple(py::handle(types.error)));
  types.io =
      make_type(m, "IoError", "A file that is missing, truncated, malformed or not writable.", with(PyExc_OSError));
  types.memory = make_type(m, "OutOfMemoryError", "Memory that the allocator could not get.", with(PyExc_MemoryError));
  py::register_local_exception_translator([](std::exception_ptr p) {
    if (!p) return;
    try {
      std::rethrow_exception(p);
    } catch (const Error&) {
      set_own_error();
    }
  });
}

}  // namespace anello::python
