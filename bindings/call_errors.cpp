// A wrong call of a class's constructor, told the framework's way: the unknown option and the one that was meant.
// Main entry: name_unknown_options().
#include "bindings.h"

#include <anello/core/suggest.h>

#include <algorithm>
#include <cctype>

namespace anello::python {
namespace {

PyTypeObject* original() { return py::detail::get_internals().default_metaclass; }

/// The names of "1. anello.SGD(params: object, lr: float = 0.1, *, nesterov: bool = False)", for each such line.
std::vector<std::string> parameter_names(const std::string& message) {
  std::vector<std::string> names;
  int depth = 0;
  std::string word;
  for (char c : message.substr(0, message.find("Invoked with"))) {
    if (c == '(' || c == '[') {
      ++depth;
    } else if (c == ')' || c == ']') {
      --depth;
    } else if (c == ':' && depth == 1) {
      names.push_back(word);
    } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
      continue;
    }
    word.clear();
  }
  return names;
}

/// The text for a constructor call that no signature fits, or "" when `message` says something else.
std::string retold(PyTypeObject* type, PyObject* kwargs, const std::string& message) {
  if (message.find("incompatible constructor arguments") == std::string::npos) return "";
  const std::vector<std::string> names = parameter_names(message);
  const std::vector<std::string_view> valid(names.begin(), names.end());
  const std::string name = py::str(py::handle(reinterpret_cast<PyObject*>(type)).attr("__name__"));
  if (kwargs != nullptr)
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(kwargs)) {
      const std::string given = py::str(key);
      if (std::find(names.begin(), names.end(), given) == names.end())
        return concat('[', name, "] unknown option '", given, "'.", suggest(given, valid));
    }
  return "";
}

/// type.__call__: makes an object; a TypeError about an unknown option is told anew.
PyObject* construct(PyObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* made = original()->tp_call(type, args, kwargs);
  if (made != nullptr || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return made;
  py::error_already_set error;
  try {
    const std::string text = retold(reinterpret_cast<PyTypeObject*>(type), kwargs, py::str(error.value()));
    if (text.empty())
      error.restore();
    else
      PyErr_SetString(PyExc_TypeError, text.c_str());
  } catch (...) {
    set_error_from_exception();
  }
  return nullptr;
}

void give_type(const py::handle module, const py::object& meta) {
  for (const auto& [name, value] : module.attr("__dict__").cast<py::dict>()) {
    if (PyModule_Check(value.ptr()) != 0) give_type(value, meta);
    if (Py_TYPE(value.ptr()) == original()) value.attr("__class__") = meta;
  }
}

}  // namespace

void name_unknown_options(const py::module_& m) {
  PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(&construct)}, {0, nullptr}};
  PyType_Spec spec{"anello._C._Type", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_BASETYPE, slots};
  const auto bases = py::make_tuple(py::handle(reinterpret_cast<PyObject*>(original())));
  const auto meta = py::reinterpret_steal<py::object>(PyType_FromSpecWithBases(&spec, bases.ptr()));
  if (!meta) throw py::error_already_set();
  give_type(m, meta);
}

}  // namespace anello::python
