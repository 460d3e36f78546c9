// The list of what is bound, one function an area.
// Main entry: PYBIND11_MODULE(_C) in module.cpp calls each of them.
#pragma once

#include "python_object.h"

namespace anello::python {

void bind_errors(py::module_& m);
void bind_dtype_device(py::module_& m);
void bind_create(py::module_& m);
void bind_exchange(py::module_& m);
void bind_dlpack(py::module_& m);
void bind_tensor_methods(py::module_& m);
void bind_elementwise(py::module_& m);
void bind_binary(py::module_& m);
void bind_reductions(py::module_& m);
void bind_shape(py::module_& m);
void bind_network(py::module_& m);
void bind_losses(py::module_& m);
void bind_in_place(py::module_& m);
void bind_hooks(py::module_& m);
void bind_custom_function(py::module_& m);
void bind_autograd(py::module_& m);
void bind_system(py::module_& m);
void bind_data(py::module_& m);

/// Lets every function and method that is bound by now, here and below, tell what is wrong with a call: the unknown
/// option and the one that was meant, the argument of a wrong type.
void answer_wrong_calls(py::handle scope);

/// Defines functions of the module that are methods of Tensor too: one callable serves as both.
class Definer {
 public:
  explicit Definer(py::module_& m) : module_(m), type_(reinterpret_cast<PyObject*>(tensor_type)) {}

  /// A function `name(input, ...)` and a method `input.name(...)`. `f` takes the tensor first; `extra`: the other
  /// arguments and the docstring. Runs without the GIL.
  template <class F, class... Extra>
  Definer& both(const char* name, F&& f, const Extra&... extra) {
    function(name, std::forward<F>(f), py::arg("input"), extra...);
    return method_alias(name, name);
  }
  /// Only a function of the module, without the GIL.
  template <class F, class... Extra>
  Definer& function(const char* name, F&& f, const Extra&... extra) {
    module_.attr(name) = py::cpp_function(std::forward<F>(f), py::name(name), py::scope(module_),
                                          py::sibling(py::getattr(module_, name, py::none())), NoGil(), extra...);
    return *this;
  }
  /// Only a method, with the GIL held.
  template <class F, class... Extra>
  Definer& method(const char* name, F&& f, const Extra&... extra) {
    type_.attr(name) = py::cpp_function(std::forward<F>(f), py::name(name), py::is_method(type_),
                                        py::sibling(py::getattr(type_, name, py::none())), extra...);
    return *this;
  }
  /// Makes a function of the module a method too.
  Definer& method_alias(const char* method, const char* function) {
    type_.attr(method) =
        py::reinterpret_steal<py::object>(PyInstanceMethod_New(py::object(module_.attr(function)).ptr()));
    return *this;
  }

 private:
  py::module_& module_;
  py::handle type_;
};

}  // namespace anello::python
