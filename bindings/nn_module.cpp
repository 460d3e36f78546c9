// Modules as Python objects: attributes that register, and what the garbage collector sees.
// Main entry: bind_module_attributes(), set_module_slots().
#include "nn_module.h"

#include "tensor_type.h"

namespace anello::python {
namespace {

using nn::Module;
using ModulePtr = std::shared_ptr<Module>;
using LifeSupport = py::detail::smart_holder_type_caster_support::shared_ptr_trampoline_self_life_support;

// --- Garbage collection ---

/// The C++ module of an object whose __init__ has run, else null.
Module* constructed_module(PyObject* self) {
  py::detail::value_and_holder holder = reinterpret_cast<py::detail::instance*>(self)->get_value_and_holder();
  return holder && holder.holder_constructed() ? static_cast<Module*>(holder.value_ptr()) : nullptr;
}

/// Visits the Python objects that sub-modules keep alive. Only what no other C++ code holds is ours to report.
int visit_children(const Module& module, visitproc visit, void* arg) {
  constexpr int64_t kOurs = 2;  // the slot, and the copy in the list
  for (const auto& [name, child] : module.named_children()) {
    if (child.use_count() != kOurs) continue;
    if (const LifeSupport* support = std::get_deleter<LifeSupport>(child)) {
      Py_VISIT(support->self);
    } else if (const int stop = visit_children(*child, visit, arg)) {
      return stop;
    }
  }
  return 0;
}

int visit_hooks(const Module& module, visitproc visit, void* arg) {
  constexpr int64_t kOurs = 2;
  for (const auto& [name, parameter] : module.named_parameters(false)) {
    if (parameter.ref()->use_count() != kOurs || parameter.impl().host != nullptr) continue;
    if (const int stop = visit_attached(parameter, visit, arg)) return stop;
  }
  return 0;
}

/// Some versions of Python visit the attributes of a subclass's objects by themselves, and leave a base that does too
/// counting them twice; which they are is tried out once (find_who_visits()).
bool python_visits_subclass_attributes = false;

int module_traverse(PyObject* self, visitproc visit, void* arg) {
  const bool subclassed = Py_TYPE(self)->tp_traverse != module_traverse;
  if (subclassed && python_visits_subclass_attributes) {
    Py_VISIT(Py_TYPE(self));
  } else if (const int stop = py::detail::pybind11_traverse(self, visit, arg)) {
    return stop;
  }
  if (!reinterpret_cast<py::detail::instance*>(self)->is_alias) return 0;  // made in C++, whose it is
  const Module* module = constructed_module(self);
  if (module == nullptr) return 0;
  if (const int stop = visit_children(*module, visit, arg)) return stop;
  return visit_hooks(*module, visit, arg);
}

int module_clear(PyObject* self) {
  struct Access : Module {
    using Module::clear_modules;
  };
  const bool ours = reinterpret_cast<py::detail::instance*>(self)->is_alias;
  if (Module* module = ours ? constructed_module(self) : nullptr) (module->*&Access::clear_modules)();
  return py::detail::pybind11_clear(self);
}

// --- Attributes ---

Module& module_of(const py::object& self) {
  if (constructed_module(self.ptr()) == nullptr)
    throw Error(concat("[", Py_TYPE(self.ptr())->tp_name,
                       "] the module is not there yet. Hint: call super().__init__() first in __init__."));
  return self.cast<Module&>();
}

bool is_parameter(const py::object& value) { return PyObject_TypeCheck(value.ptr(), parameter_type) != 0; }

py::object get_attribute(const py::object& self, const py::str& key) {
  const std::string name = is_utf8(key.ptr()) ? key.cast<std::string>() : "";  // no module registers ''
  if (constructed_module(self.ptr()) != nullptr) {
    auto& module = self.cast<Module&>();
    if (const Tensor* parameter = module.find_parameter(name)) return wrap_parameter(*parameter);
    if (const Tensor* buffer = module.find_buffer(name)) return py::cast(*buffer);
    if (const ModulePtr child = module.find_module(name)) return py::cast(child);
  }
  throw py::attribute_error(
      concat("'", Py_TYPE(self.ptr())->tp_name, "' object has no attribute ", std::string(py::repr(key))));
}

void set_plain(const py::object& self, const py::str& name, PyObject* value) {
  if (PyObject_GenericSetAttr(self.ptr(), name.ptr(), value) != 0) throw py::error_already_set();
}

/// A registered thing is found when nothing in the instance or the class hides its name.
void make_room(const py::object& self, const Module& module, const std::string& name) {
  check<ValueError>(!py::hasattr(py::type::of(self), name.c_str()), module.class_name(), "'", name,
                    "' is an attribute of the class. Hint: choose another name.");
  const py::dict attributes = self.attr("__dict__");
  if (attributes.contains(name)) PyDict_DelItemString(attributes.ptr(), name.c_str());
}

void forget(Module& module, const std::string& name) {
  if (module.find_parameter(name) != nullptr || module.find_buffer(name) != nullptr ||
      module.find_module(name) != nullptr)
    module.remove(name);
}

void register_parameter(const py::object& self, const std::string& name, const std::optional<Tensor>& value) {
  Module& module = module_of(self);
  check<ValueError>(module.find_buffer(name) == nullptr, module.class_name(), "'", name,
                    "' is a buffer and cannot become a parameter. Hint: choose another name, or del module.", name,
                    " first.");
  if (module.find_parameter(name) == nullptr) {
    make_room(self, module, name);
    forget(module, name);
  }
  module.set_parameter(name, value.value_or(Tensor()));
}

void register_buffer(const py::object& self, const std::string& name, const std::optional<Tensor>& value,
                     bool persistent) {
  Module& module = module_of(self);
  if (module.find_buffer(name) == nullptr) make_room(self, module, name);
  module.set_buffer(name, value.value_or(Tensor()), persistent);
}

void register_module(const py::object& self, const std::string& name, const ModulePtr& child) {
  Module& module = module_of(self);
  if (module.find_module(name) == nullptr) {
    make_room(self, module, name);
    forget(module, name);
  }
  module.set_module(name, child);
}

void set_attribute(const py::object& self, const py::str& key, const py::object& value) {
  const std::string name = text_of("Module", "a name", key);
  if (is_parameter(value)) return register_parameter(self, name, tensor_of(value.ptr()));
  if (py::isinstance<Module>(value)) {
    module_of(value);
    return register_module(self, name, value.cast<ModulePtr>());
  }
  if (constructed_module(self.ptr()) != nullptr) {
    auto& module = self.cast<Module&>();
    if (module.find_parameter(name) != nullptr) {
      check<DTypeError>(value.is_none(), module.class_name(), "'", name, "' is a parameter and cannot become ",
                        Py_TYPE(value.ptr())->tp_name, ". Hint: assign nn.Parameter(tensor), or None.");
      return module.set_parameter(name, Tensor());
    }
    if (Tensor* buffer = module.find_buffer(name)) {
      check<DTypeError>(value.is_none() || is_tensor(value.ptr()), module.class_name(), "'", name,
                        "' is a buffer and cannot become ", Py_TYPE(value.ptr())->tp_name,
                        ". Hint: assign a tensor, or None.");
      *buffer = value.is_none() ? Tensor() : tensor_of(value.ptr());
      return;
    }
    if (module.find_module(name) != nullptr) {
      check<DTypeError>(value.is_none(), module.class_name(), "'", name, "' is a module and cannot become ",
                        Py_TYPE(value.ptr())->tp_name, ". Hint: assign another module, or None.");
      module.remove(name);
    }
  }
  set_plain(self, key, value.ptr());
}

void delete_attribute(const py::object& self, const py::str& key) {
  const std::string name = text_of("Module", "a name", key);
  Module& module = module_of(self);
  const bool registered = module.find_parameter(name) != nullptr || module.find_buffer(name) != nullptr ||
                          module.find_module(name) != nullptr;
  registered ? module.remove(name) : set_plain(self, key, nullptr);
}

py::list attribute_names(const py::object& self) {
  py::list names = py::module_::import("builtins").attr("object").attr("__dir__")(self);
  if (constructed_module(self.ptr()) == nullptr) return names;
  const auto& module = self.cast<Module&>();
  for (const auto& [name, tensor] : module.named_parameters(false)) names.append(name);
  for (const auto& [name, tensor] : module.named_buffers(false)) names.append(name);
  for (const auto& [name, child] : module.named_children()) names.append(name);
  return names;
}

}  // namespace

void set_module_slots(PyHeapTypeObject* type) {
  type->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->ht_type.tp_traverse = module_traverse;
  type->ht_type.tp_clear = module_clear;
}

void find_who_visits(const py::object& module_class) {
  python_visits_subclass_attributes = true;  // so that only Python's own visits are seen
  const py::object subclass =
      py::module_::import("builtins").attr("type")("Probe", py::make_tuple(module_class), py::dict());
  const py::object probe = subclass();
  const py::list marker;
  probe.attr("marker") = marker;
  bool seen = false;
  for (const py::handle object : py::module_::import("gc").attr("get_referents")(probe)) {
    const bool attributes =
        py::isinstance<py::dict>(object) && py::reinterpret_borrow<py::dict>(object).contains("marker");
    seen = seen || object.is(marker) || attributes;
  }
  python_visits_subclass_attributes = seen;
}

void bind_module_attributes(BaseModuleClass& cls) {
  cls.def("__getattr__", get_attribute, py::arg("name"))
      .def("__setattr__", set_attribute, py::arg("name"), py::arg("value"))
      .def("__delattr__", delete_attribute, py::arg("name"))
      .def("__dir__", attribute_names)
      .def("register_parameter", register_parameter, py::arg("name"), py::arg("param"),
           R"(Sets a parameter by name; None stands for an absent one. The same as assigning an attribute.

>>> import anello
>>> net = anello.nn.Module()
>>> net.register_parameter("scale", anello.nn.Parameter(anello.ones(3)))
>>> net.scale.shape
(3,)
)")
      .def("register_buffer", register_buffer, py::arg("name"), py::arg("tensor"), py::arg("persistent") = true,
           R"(Sets a buffer by name: a tensor that is saved and moved with the module but not trained. Not persistent:
moved, but not saved.

>>> import anello
>>> net = anello.nn.Module()
>>> net.register_buffer("count", anello.tensor(0))
>>> list(net.state_dict())
['count']
)")
      .def("register_module", register_module, py::arg("name"), py::arg("module"),
           R"(Sets a sub-module by name. The same as assigning an attribute.

>>> import anello
>>> net = anello.nn.Module()
>>> net.register_module("fc", anello.nn.Linear(2, 3))
>>> net.fc.weight.shape
(3, 2)
)")
      .def("add_module", register_module, py::arg("name"), py::arg("module"), R"(register_module(), by its other name.

>>> import anello
>>> net = anello.nn.Module()
>>> net.add_module("fc", anello.nn.Linear(2, 3))
)");
}

}  // namespace anello::python
