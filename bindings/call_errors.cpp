// A wrong call of a function, method or class, told the framework's way: the unknown option and the one that was meant,
// the argument that does not fit. No values of tensors are printed.
// Main entry: answer_wrong_calls().
#include "bindings.h"
#include "signature.h"

#include <anello/core/suggest.h>

#include <algorithm>

namespace anello::python {
namespace {

using py::detail::function_record;

/// A call that failed.
struct Call {
  const function_record* function;  ///< the first of its overloads
  std::vector<py::handle> given;    ///< by place
  std::vector<std::pair<std::string, py::handle>> named;
};

/// "conv2d", "Linear" for a constructor, "Module.load_state_dict".
std::string name_of(const function_record& function) {
  if (!function.scope || PyType_Check(function.scope.ptr()) == 0) return function.name;
  const std::string type = py::str(function.scope.attr("__name__"));
  if (function.is_constructor) return type;
  return function.scope.ptr() == reinterpret_cast<PyObject*>(tensor_type) ? function.name
                                                                          : concat(type, '.', function.name);
}

std::vector<Signature> signatures_of(const function_record& function) {
  std::vector<Signature> found;
  for (const function_record* f = &function; f != nullptr; f = f->next) {
    Signature signature(f->signature);
    if (f->is_method && !signature.parameters.empty()) {
      signature.parameters.erase(signature.parameters.begin());
      const size_t comma = signature.text.find(", ");
      signature.text = comma == std::string::npos ? "" : signature.text.substr(comma + 2);
    }
    found.push_back(std::move(signature));
  }
  return found;
}

std::string hint(const Call& call, const std::vector<Signature>& signatures) {
  std::string text;
  for (const Signature& s : signatures)
    text += concat(text.empty() ? " Hint: " : " or ", name_of(*call.function), '(', s.text, ')');
  return text + '.';
}

/// What an option that no overload has should have been, or "".
std::string unknown_option(const Call& call, const std::vector<Signature>& signatures) {
  std::vector<std::string_view> valid;
  for (const Signature& s : signatures) {
    if (s.any_keyword) return "";
    for (const ParameterText& p : s.parameters)
      if (std::find(valid.begin(), valid.end(), p.name) == valid.end()) valid.push_back(p.name);
  }
  for (const auto& [name, value] : call.named)
    if (std::find(valid.begin(), valid.end(), name) == valid.end())
      return concat("unknown option '", name, "'.", suggest(name, valid));
  return "";
}

/// What is wrong with the arguments of a function of one signature, or "" when that cannot be told from outside.
std::string wrong_argument(const Call& call, const Signature& signature) {
  if (!signature.any_positional && call.given.size() > signature.places())
    return concat("takes at most ", signature.places(), signature.places() == 1 ? " argument" : " arguments",
                  " by place, got ", call.given.size(), '.');
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    const ParameterText& parameter = signature.parameters[i];
    const auto named = std::find_if(call.named.begin(), call.named.end(),
                                    [&](const auto& pair) { return pair.first == parameter.name; });
    const bool by_place = !parameter.keyword_only && i < call.given.size(), by_name = named != call.named.end();
    if (by_place && by_name) return concat("argument '", parameter.name, "' is given twice.");
    if (!by_place && !by_name) {
      if (parameter.required) return concat("argument '", parameter.name, "' is missing.");
      continue;
    }
    const py::handle value = by_place ? call.given[i] : named->second;
    if (surely_unfit(value, parameter.type))
      return concat("argument '", parameter.name, "' must be ", parameter.type, ", got ", told(value), '.');
  }
  return "";
}

std::string arguments_told(const Call& call) {
  std::string text;
  for (const py::handle value : call.given) text += (text.empty() ? "" : ", ") + told(value);
  for (const auto& [name, value] : call.named) text += concat(text.empty() ? "" : ", ", name, '=', told(value));
  return text;
}

std::string retold(Call call) {
  if (call.function->is_method && !call.given.empty()) call.given.erase(call.given.begin());
  const std::vector<Signature> signatures = signatures_of(*call.function);
  const std::string start = concat('[', name_of(*call.function), "] ");
  if (const std::string text = unknown_option(call, signatures); !text.empty()) return start + text;
  const std::string text = signatures.size() == 1 ? wrong_argument(call, signatures[0]) : "";
  return concat(start, text.empty() ? concat("cannot be called with (", arguments_told(call), ").") : text,
                hint(call, signatures));
}

/// The type in "Unable to cast Python instance of type <class 'int'> to C++ type ...".
std::string cast_type(const std::string& message) {
  const size_t open = message.find('\''), close = message.find('\'', open + 1);
  return close == std::string::npos ? "object" : message.substr(open + 1, close - open - 1);
}

/// After a failed call: puts a better error in place of one that pybind11 made.
template <class MakeCall>
void retell(PyObject* self, const MakeCall& make_call) {
  const bool mismatch = PyErr_ExceptionMatches(PyExc_TypeError) != 0;
  if (!mismatch && PyErr_ExceptionMatches(PyExc_RuntimeError) == 0) return;
  py::error_already_set error;
  try {
    const function_record* function = py::detail::function_record_ptr_from_PyObject(self);
    const bool plain = error.type().ptr() == (mismatch ? PyExc_TypeError : PyExc_RuntimeError);
    const std::string message = plain ? std::string(py::str(error.value())) : "";
    if (mismatch && message.rfind(std::string(function->name) + "(): incompatible ", 0) == 0)
      throw TypeError(retold(make_call(function)));
    if (message.rfind("Unable to cast Python instance", 0) == 0)
      fail<TypeError>(name_of(*function), "an object of type ", cast_type(message),
                      " was given, or came back from a function, where another type is needed.");
    error.restore();
  } catch (...) {
    set_error_from_exception();
  }
}

// --- Standing in for pybind11's dispatcher ---

PyCFunction dispatcher = nullptr;

template <class Function>
Function* dispatcher_as() {
  return reinterpret_cast<Function*>(reinterpret_cast<void (*)()>(dispatcher));
}

using FastFunction = PyObject*(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

PyObject* call_fast(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  PyObject* result = dispatcher_as<FastFunction>()(self, arguments, count, names);
  if (result != nullptr) [[likely]]
    return result;
  retell(self, [&](const function_record* function) {
    const Py_ssize_t places = PyVectorcall_NARGS(static_cast<size_t>(count));
    Call call{function, {arguments, arguments + places}, {}};
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i)
      call.named.emplace_back(py::str(py::handle(PyTuple_GET_ITEM(names, i))), arguments[places + i]);
    return call;
  });
  return nullptr;
}

/// The same for pybind11 before 3.1.
PyObject* call_with_tuple(PyObject* self, PyObject* arguments, PyObject* named) {
  PyObject* result = dispatcher_as<PyObject*(PyObject*, PyObject*, PyObject*)>()(self, arguments, named);
  if (result != nullptr) return result;
  retell(self, [&](const function_record* function) {
    Call call{function, {}, {}};
    for (const py::handle value : py::reinterpret_borrow<py::tuple>(arguments)) call.given.push_back(value);
    if (named != nullptr)
      for (const auto& [name, value] : py::reinterpret_borrow<py::dict>(named))
        call.named.emplace_back(py::str(name), value);
    return call;
  });
  return nullptr;
}

void stand_in(py::handle callable) {
  if (!callable) return;
  if (PyInstanceMethod_Check(callable.ptr()) != 0) callable = PyInstanceMethod_GET_FUNCTION(callable.ptr());
  if (PyCFunction_Check(callable.ptr()) == 0) return;
  PyObject* self = PyCFunction_GET_SELF(callable.ptr());
  if (self == nullptr || !py::detail::is_function_record_PyObject(self)) return;
  PyMethodDef* method = reinterpret_cast<PyCFunctionObject*>(callable.ptr())->m_ml;
  if (dispatcher == nullptr) dispatcher = method->ml_meth;
  if (method->ml_meth != dispatcher) return;  // done: a function under two names
  const bool fast = (method->ml_flags & METH_FASTCALL) != 0;
  method->ml_meth = fast ? reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call_fast))
                         : reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call_with_tuple));
}

}  // namespace

void answer_wrong_calls(py::handle scope) {
  for (const auto& [name, value] : py::dict(scope.attr("__dict__"))) {
    const std::string key = py::str(name);
    const bool part = PyModule_Check(value.ptr()) != 0 || (PyType_Check(value.ptr()) != 0 && key.rfind("__", 0) != 0);
    if (part) {
      answer_wrong_calls(value);
    } else if (PyObject_TypeCheck(value.ptr(), &PyProperty_Type) != 0) {
      stand_in(value.attr("fget"));
      stand_in(value.attr("fset"));
    } else {
      stand_in(py::isinstance<py::staticmethod>(value) ? py::object(value.attr("__func__"))
                                                       : py::reinterpret_borrow<py::object>(value));
    }
  }
}

}  // namespace anello::python
