// Attributes of tensors in Python: shape, dtype, grad and so on.
// Main entry: add_property_slots().
#include "tensor_type.h"

#include <anello/autograd/functions.h>
#include <anello/autograd/node.h>

namespace anello::python {
namespace {

template <class F>
PyObject* cast(const F& value) {
  return py::cast(value).release().ptr();
}

/// A getter of Python from a function of the tensor.
template <auto kFunction>
PyObject* get(PyObject* self, void*) {
  return guarded([&] { return cast(kFunction(tensor_of(self))); });
}

bool has_grad_required(const Tensor& x) { return x.requires_grad(); }
bool leaf(const Tensor& x) { return x.is_leaf(); }
Tensor grad_of(const Tensor& x) { return x.grad(); }
Tensor data_of(const Tensor& x) { return x.detach(); }
Shape shape_of(const Tensor& x) { return x.shape(); }
DType dtype_of_tensor(const Tensor& x) { return x.dtype(); }
Device device_of(const Tensor& x) { return x.device(); }
int ndim(const Tensor& x) { return x.dim(); }
size_t item_size_of(const Tensor& x) { return x.item_size(); }
size_t nbytes(const Tensor& x) { return x.nbytes(); }
std::string name_of(const Tensor& x) { return x.name(); }

Tensor reversed(const Tensor& x) {
  std::vector<int64_t> dims;
  for (int i = x.dim() - 1; i >= 0; --i) dims.push_back(i);
  return x.dim() < 2 ? x : permute(x, dims);
}

PyObject* grad_fn_of(PyObject* self, void*) {
  return guarded([&]() -> PyObject* {
    const Ref<Node> node = grad_fn(tensor_of(self));
    if (!node) Py_RETURN_NONE;
    return make_node_object(node).release().ptr();
  });
}

/// Runs f(value); a null value is `del x.attribute`.
template <class F>
int set(PyObject* value, const char* name, const F& f) {
  if (value == nullptr) {
    PyErr_Format(PyExc_AttributeError, "the attribute %s cannot be deleted", name);
    return -1;
  }
  try {
    f();
    return 0;
  } catch (...) {
    set_error_from_exception();
    return -1;
  }
}

int set_requires_grad_of(PyObject* self, PyObject* value, void*) {
  return set(value, "requires_grad", [&] {
    const int wanted = PyObject_IsTrue(value);
    if (wanted < 0) throw py::error_already_set();
    tensor_of(self).set_requires_grad(wanted != 0);
  });
}

int set_grad_of(PyObject* self, PyObject* value, void*) {
  return set(value != nullptr ? value : Py_None, "grad", [&] {
    PyObject* grad = value != nullptr ? value : Py_None;
    check<DTypeError>(grad == Py_None || is_tensor(grad), "grad", "a gradient is a Tensor or None, not ",
                      Py_TYPE(grad)->tp_name);
    tensor_of(self).set_grad(grad == Py_None ? Tensor() : tensor_of(grad));
  });
}

int set_name_of(PyObject* self, PyObject* value, void*) {
  return set(value, "name", [&] { tensor_of(self).set_name(text_of("name", "a tensor's name", value)); });
}

PyGetSetDef properties[] = {
    {"shape", get<&shape_of>, nullptr, "The sizes as a tuple of int.", nullptr},
    {"dtype", get<&dtype_of_tensor>, nullptr, "The element type, as anello.float32.", nullptr},
    {"device", get<&device_of>, nullptr, "Where the memory is, as anello.device('cpu').", nullptr},
    {"ndim", get<&ndim>, nullptr, "Number of dims.", nullptr},
    {"itemsize", get<&item_size_of>, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get<&nbytes>, nullptr, "Bytes of all elements.", nullptr},
    {"requires_grad", get<&has_grad_required>, set_requires_grad_of,
     "Whether backward() computes a gradient for this tensor. Can be set on leaves.", nullptr},
    {"grad", get<&grad_of>, set_grad_of, "The gradient that backward() accumulated, or None.", nullptr},
    {"grad_fn", grad_fn_of, nullptr,
     "The recorded operation that produced this tensor (str() is its name), or None for a leaf.", nullptr},
    {"is_leaf", get<&leaf>, nullptr, "True unless an operation that autograd recorded produced this tensor.", nullptr},
    {"T", get<&reversed>, nullptr, "The dims in reverse order (a view).", nullptr},
    {"data", get<&data_of>, nullptr, "The same memory outside the graph: detach().", nullptr},
    {"name", get<&name_of>, set_name_of, "A name for error messages; '' unless set. A Module names its parameters.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

void add_property_slots(std::vector<PyType_Slot>& slots) { slots.push_back({Py_tp_getset, properties}); }

}  // namespace anello::python
