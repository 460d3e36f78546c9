// How C++ modules become Python classes that can be subclassed.
// Main entry: bind_layer<T>().
#pragma once

#include "bindings.h"

#include <anello/layers/module.h>

#include <pybind11/trampoline_self_life_support.h>

#include <memory>
#include <string>
#include <typeinfo>

namespace anello::python {

/// What every module made from Python is: a T that keeps its Python object alive for as long as C++ holds the module,
/// and asks that object's class for overrides when it is a subclass written in Python.
template <class T>
class PyModule : public T, public py::trampoline_self_life_support {
 public:
  template <class... Args>
  explicit PyModule(bool subclassed, Args&&... args) : T(std::forward<Args>(args)...), subclassed_(subclassed) {}

  using T::forward;
  Tensor forward(const Tensor& x) override {
    if (!subclassed_) return T::forward(x);
    PYBIND11_OVERRIDE(Tensor, T, forward, x);
  }
  void train(bool mode) override {
    if (!subclassed_) return T::train(mode);
    PYBIND11_OVERRIDE(void, T, train, mode);
  }
  std::string extra_repr() const override {
    if (!subclassed_) return T::extra_repr();
    PYBIND11_OVERRIDE(std::string, T, extra_repr, );
  }
  std::string class_name() const override {
    if constexpr (std::is_same_v<T, nn::Module>)
      if (!subclassed_) return "Module";
    if (!subclassed_) return T::class_name();
    const GilAcquire gil;
    const py::handle self =
        py::detail::get_object_handle(static_cast<const T*>(this), py::detail::get_type_info(typeid(T)));
    return self ? py::type::of(self).attr("__name__").cast<std::string>() : T::class_name();
  }

 private:
  bool subclassed_;
};

/// Slots for the garbage collector: attributes, sub-modules and hooks of parameters.
void set_module_slots(PyHeapTypeObject* type);

using BaseModuleClass = py::class_<nn::Module, PyModule<nn::Module>, py::smart_holder>;
template <class T, class Base>
using ModuleClass = py::class_<T, Base, PyModule<T>, py::smart_holder>;

/// forward(x) without the GIL: T's own where Python knows the object as a T, else (a class of C++ that Python has not
/// been told of) the object's.
template <class T>
Tensor forward_of(T& self, const Tensor& x) {
  const GilRelease release;
  return typeid(self) == typeid(PyModule<T>) ? self.T::forward(x) : self.forward(x);
}

/// A layer's class: `make(args...)` gives the constructor's arguments as a tuple; `extra` are py::arg()s and nothing
/// else.
template <class T, class Base, class... Args, class... Extra>
ModuleClass<T, Base> bind_layer(py::module_& m, const char* name, const char* doc, auto(*make)(Args...),
                                const Extra&... extra) {
  ModuleClass<T, Base> cls(m, name, doc, py::dynamic_attr(), py::custom_type_setup(set_module_slots));
  const auto build = [make](bool subclassed, Args... args) {
    return std::apply(
        [&](auto&&... made) {
          return std::make_unique<PyModule<T>>(subclassed, std::forward<decltype(made)>(made)...);
        },
        make(std::forward<Args>(args)...));
  };
  cls.def(py::init([build](Args... args) { return build(false, std::forward<Args>(args)...); },
                   [build](Args... args) { return build(true, std::forward<Args>(args)...); }),
          extra...);
  cls.def("forward", &forward_of<T>, py::arg("input"), "The computation of this layer.");
  return cls;
}

/// nn_module.cpp: attribute access and registration.
void bind_module_attributes(BaseModuleClass& cls);
/// nn_module.cpp: adapts set_module_slots() to the running Python. Call it once, when nn.Module is bound.
void find_who_visits(const py::object& module_class);
void bind_module_class(py::module_& m);
void bind_basic_layers(py::module_& m);
void bind_activation_layers(py::module_& m);
void bind_loss_layers(py::module_& m);
void bind_containers(py::module_& m);
void bind_initialisers(py::module_& m);

}  // namespace anello::python
