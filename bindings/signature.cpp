// Signatures and values as error messages show them.
// Main entry: Signature, surely_unfit(), told().
#include "signature.h"

#include <utility>

namespace anello::python {
namespace {

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Types under the names that are public.
std::string public_names(std::string text) {
  for (const char* part : {"nn", "optim", "data", "autograd", "dist"})
    replace_all(text, concat("anello._C._", part, '.'), concat("anello.", part, '.'));
  replace_all(text, "anello._C.", "anello.");
  replace_all(text, "typing.SupportsInt | typing.SupportsIndex", "int");
  replace_all(text, "typing.SupportsFloat | typing.SupportsIndex", "float");
  replace_all(text, "collections.abc.", "");
  return text;
}

/// Splits at `separator` outside brackets and quotes; stops at a closing bracket that was not opened.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      quote = c == quote ? 0 : quote;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      if (--depth < 0) break;
    } else if (c == separator && depth == 0) {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
  }
  for (std::string& part : parts) {
    const size_t first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
    part = first == std::string::npos ? "" : part.substr(first, last - first + 1);
  }
  return parts;
}

bool is_integer_like(PyObject* value) {
  const PyNumberMethods* number = Py_TYPE(value)->tp_as_number;
  return !PyFloat_Check(value) && number != nullptr && (number->nb_index != nullptr || number->nb_int != nullptr);
}

bool is_float_like(PyObject* value) {
  const PyNumberMethods* number = Py_TYPE(value)->tp_as_number;
  return number != nullptr && (number->nb_float != nullptr || number->nb_index != nullptr);
}

bool is_plain(PyObject* value) {
  return value == Py_None || PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value) ||
         PyBytes_Check(value) || PyList_Check(value) || PyTuple_Check(value) || PyDict_Check(value);
}

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

bool may_be(PyObject* value, const std::string& type) {
  if (type == "None") return value == Py_None;
  if (type == "anello.Tensor") return is_tensor(value);
  if (type == "int") return is_integer_like(value);
  if (type == "float") return is_float_like(value);
  if (type == "bool") return value == Py_None || !is_plain(value) || PyLong_Check(value) || PyFloat_Check(value);
  if (type == "str") return PyUnicode_Check(value) ? is_utf8(value) : PyBytes_Check(value) != 0;
  if (type == "dict" || starts_with(type, "dict[")) return PyDict_Check(value) != 0;
  if (starts_with(type, "tuple[") || starts_with(type, "list[") || starts_with(type, "Sequence["))
    return PySequence_Check(value) != 0 && PyUnicode_Check(value) == 0 && PyBytes_Check(value) == 0;
  if (type == "anello.dtype" || type == "anello.device") return true;
  return !starts_with(type, "anello.") || !is_plain(value);
}

}  // namespace

Signature::Signature(const std::string& signature) {
  bool keyword_only = false;
  for (std::string& part : split(public_names(signature.substr(signature.find('(') + 1)), ',')) {
    text += (text.empty() ? "" : ", ") + part;
    if (part == "/" || part.empty()) continue;
    if (starts_with(part, "**")) {
      any_keyword = true;
    } else if (part[0] == '*') {
      keyword_only = true;
      any_positional = any_positional || part.size() > 1;
    } else {
      const std::vector<std::string> halves = split(part, '=');
      const size_t colon = halves[0].find(':');
      const std::string type = colon == std::string::npos ? "object" : halves[0].substr(colon + 2);
      parameters.push_back({halves[0].substr(0, colon), type, halves.size() == 1, keyword_only});
    }
  }
}

size_t Signature::places() const {
  size_t count = 0;
  for (const ParameterText& parameter : parameters) count += parameter.keyword_only ? 0 : 1;
  return count;
}

bool surely_unfit(py::handle value, const std::string& type) {
  for (const std::string& alternative : split(type, '|'))
    if (may_be(value.ptr(), alternative)) return false;
  return true;
}

std::string told(py::handle value) {
  if (value.is_none()) return "None";
  const std::string type = py::str(py::type::of(value).attr("__name__"));
  const std::string one = (std::string("aeioAEIO").find(type[0]) == std::string::npos ? "a " : "an ") + type;
  const bool number = PyLong_Check(value.ptr()) != 0 || PyFloat_Check(value.ptr()) != 0;
  if (!number && PyUnicode_Check(value.ptr()) == 0) return one;
  constexpr Py_ssize_t kShown = 40;
  py::object shown = py::reinterpret_borrow<py::object>(value);
  if (!number && PyUnicode_GetLength(value.ptr()) > kShown)
    shown = py::reinterpret_steal<py::object>(PyUnicode_Substring(value.ptr(), 0, kShown));
  shown = py::reinterpret_steal<py::object>(is_utf8(shown.ptr()) ? PyObject_Repr(shown.ptr())
                                                                 : PyObject_ASCII(shown.ptr()));
  if (!shown) {  // an integer of thousands of digits
    PyErr_Clear();
    return one;
  }
  return concat("the ", type, ' ', shown.cast<std::string>());
}

}  // namespace anello::python
