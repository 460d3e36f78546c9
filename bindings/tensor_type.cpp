// The Python type anello.Tensor and its subclass anello.nn.Parameter: life, identity, garbage collection, slots.
// Main entry: make_tensor_types(), wrap().
#include "tensor_type.h"

#include <anello/autograd/functions.h>
#include <anello/core/suggest.h>

#include <new>

namespace anello::python {

PyTypeObject* tensor_type = nullptr;
PyTypeObject* parameter_type = nullptr;

namespace {

TensorObject* object_of(PyObject* self) { return reinterpret_cast<TensorObject*>(self); }

/// A fresh object of `type`; the tensor must have no other.
PyObject* make(PyTypeObject* type, const Tensor& tensor) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  new (&object_of(self)->tensor) Tensor(tensor);
  tensor.impl().host = self;
  return self;
}

void let_go(PyObject* self) {
  const Tensor tensor = std::move(object_of(self)->tensor);
  if (tensor.defined() && tensor.impl().host == self) tensor.impl().host = nullptr;
}

void tensor_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (object_of(self)->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  let_go(self);
  object_of(self)->tensor.~Tensor();
  type->tp_free(self);
  Py_DECREF(type);
}

int tensor_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const Tensor& tensor = object_of(self)->tensor;
  // What hangs on the tensor is only ours to report while nobody in C++ holds the tensor too.
  if (tensor.defined() && tensor.ref()->use_count() == 1) return visit_attached(tensor, visit, arg);
  return 0;
}

int tensor_clear(PyObject* self) {
  let_go(self);
  return 0;
}

/// Sets a Python error for an option that is none of `known`.
bool only_known_options(PyTypeObject* type, PyObject* kwargs, const char* const* known) {
  try {
    const std::vector<std::string_view> valid = {known[0], known[1]};
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(kwargs)) {
      const std::string given = py::str(key);
      if (given == valid[0] || given == valid[1]) continue;
      const std::string name = py::str(py::handle(reinterpret_cast<PyObject*>(type)).attr("__name__"));
      fail<TypeError>(name, "unknown option '", given, "'.", suggest(given, valid));
    }
    return true;
  } catch (...) {
    set_error_from_exception();
    return false;
  }
}

/// Tensor(data) and Parameter(data, requires_grad=True): a new tensor on the memory of `data` where that is a tensor.
PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"data", "requires_grad", nullptr};
  PyObject* data = nullptr;
  const bool parameter = PyType_IsSubtype(type, parameter_type) != 0;
  int requires_grad = parameter ? 1 : 0;
  if (kwargs != nullptr && !only_known_options(type, kwargs, keywords)) return nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p", const_cast<char**>(keywords), &data, &requires_grad))
    return nullptr;
  return guarded([&]() -> PyObject* {
    const Tensor tensor = is_tensor(data) ? tensor_of(data).detach() : tensor_from_data(data, {});
    if (requires_grad != 0) tensor.set_requires_grad(true);
    return make(type, tensor);
  });
}

PyObject* tensor_repr(PyObject* self) {
  return guarded([&]() -> PyObject* {
    const Tensor& tensor = object_of(self)->tensor;
    const bool parameter = PyType_IsSubtype(Py_TYPE(self), parameter_type) != 0;
    return py::str((parameter ? "Parameter containing:\n" : "") + to_string(tensor)).release().ptr();
  });
}

Py_hash_t tensor_hash(PyObject* self) {
  const auto address = reinterpret_cast<size_t>(self);
  return static_cast<Py_hash_t>(address >> 4);
}

PyObject* tensor_iter(PyObject* self) {
  return guarded([&]() -> PyObject* {
    const Tensor& tensor = object_of(self)->tensor;
    if (tensor.dim() == 0)
      throw py::type_error("[iter] a tensor of 0 dims cannot be iterated. Hint: item() is its value.");
    py::list rows;
    for (int64_t i = 0; i < tensor.shape()[0]; ++i) rows.append(select(tensor, 0, i));
    return PyObject_GetIter(rows.ptr());
  });
}

Py_ssize_t tensor_length(PyObject* self) {
  const Tensor& tensor = object_of(self)->tensor;
  if (!tensor.defined() || tensor.dim() == 0) {
    PyErr_SetString(PyExc_TypeError, "[len] a tensor of 0 dims has no length. Hint: numel() is 1.");
    return -1;
  }
  return tensor.shape()[0];
}

int tensor_contains(PyObject* self, PyObject* value) {
  try {
    const Tensor& tensor = object_of(self)->tensor;
    check<DTypeError>(is_tensor(value) || is_number(value), "in", "a tensor holds numbers, not ",
                      Py_TYPE(value)->tp_name);
    const Tensor same = is_tensor(value) ? eq(tensor, tensor_of(value)) : eq(tensor, to_scalar(value));
    return any(same).item<int64_t>() != 0 ? 1 : 0;
  } catch (...) {
    set_error_from_exception();
    return -1;
  }
}

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

constexpr const char* kTensorDoc =
    "Tensor(data, requires_grad=False)\n\n"
    "An array of numbers of one dtype that can take part in gradients. Make one with anello.tensor(), zeros(), "
    "randn(),\n"
    "from_numpy() and so on; called directly, the result shares the memory of `data` where that is a tensor.\n\n"
    ">>> import anello\n"
    ">>> x = anello.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)\n"
    ">>> (x * x).sum().backward()\n"
    ">>> x.grad.tolist()\n"
    "[[2.0, 4.0], [6.0, 8.0]]\n";
constexpr const char* kParameterDoc =
    "Parameter(data, requires_grad=True)\n\n"
    "A tensor that a Module trains: assigned as an attribute of one, it is registered there.\n\n"
    ">>> import anello\n"
    ">>> w = anello.nn.Parameter(anello.zeros(3))\n"
    ">>> w.requires_grad\n"
    "True\n";

template <class F>
PyType_Slot slot(int id, F function) {
  return {id, reinterpret_cast<void*>(function)};
}

}  // namespace

PyObject* wrap(const Tensor& tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
  if (auto* host = static_cast<PyObject*>(tensor.impl().host); host != nullptr) {
    Py_INCREF(host);
    return host;
  }
  return make(tensor_type, tensor);
}

PyObject* wrap_as(PyTypeObject* type, const Tensor& tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
  auto* host = static_cast<PyObject*>(tensor.impl().host);
  if (host == nullptr) return make(type, tensor);
  if (Py_TYPE(host) == tensor_type && type != tensor_type) {  // the layouts are the same
    Py_INCREF(type);
    Py_SET_TYPE(host, type);
    Py_DECREF(tensor_type);
  }
  Py_INCREF(host);
  return host;
}

py::object wrap_parameter(const Tensor& tensor) {
  py::object object = py::reinterpret_steal<py::object>(wrap_as(parameter_type, tensor));
  if (!object) throw py::error_already_set();
  return object;
}

void make_tensor_types(py::module_& m) {
  std::vector<PyType_Slot> slots = {
      slot(Py_tp_new, tensor_new),
      slot(Py_tp_dealloc, tensor_dealloc),
      slot(Py_tp_traverse, tensor_traverse),
      slot(Py_tp_clear, tensor_clear),
      slot(Py_tp_repr, tensor_repr),
      slot(Py_tp_hash, tensor_hash),
      slot(Py_tp_iter, tensor_iter),
      slot(Py_mp_length, tensor_length),
      slot(Py_sq_contains, tensor_contains),
      slot(Py_mp_subscript, tensor_getitem),
      slot(Py_mp_ass_subscript, tensor_setitem),
      {Py_tp_members, members},
      {Py_tp_doc, const_cast<char*>(kTensorDoc)},
  };
  add_number_slots(slots);
  add_property_slots(slots);
  add_buffer_slots(slots);
  slots.push_back({0, nullptr});
  constexpr unsigned kFlags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
  PyType_Spec spec{"anello.Tensor", sizeof(TensorObject), 0, kFlags, slots.data()};
  tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (tensor_type == nullptr) throw py::error_already_set();

  PyType_Slot parameter_slots[] = {
      slot(Py_tp_dealloc, tensor_dealloc), {Py_tp_doc, const_cast<char*>(kParameterDoc)}, {0, nullptr}};
  constexpr unsigned kParameterFlags = kFlags & ~Py_TPFLAGS_HAVE_GC;  // inherited, with traverse and clear
  PyType_Spec parameter_spec{"anello.nn.Parameter", sizeof(TensorObject), 0, kParameterFlags, parameter_slots};
  const py::tuple bases = py::make_tuple(py::handle(reinterpret_cast<PyObject*>(tensor_type)));
  parameter_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&parameter_spec, bases.ptr()));
  if (parameter_type == nullptr) throw py::error_already_set();

  m.attr("Tensor") = py::handle(reinterpret_cast<PyObject*>(tensor_type));
  m.attr("Parameter") = py::handle(reinterpret_cast<PyObject*>(parameter_type));
}

}  // namespace anello::python
