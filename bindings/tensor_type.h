// The parts of the Tensor type that live in files of their own.
// Main entry: make_tensor_types().
#pragma once

#include "python_object.h"

#include <structmember.h>

namespace anello {
class Node;
}

namespace anello::python {

/// Creates anello.Tensor and anello.nn.Parameter.
void make_tensor_types(py::module_& m);

/// numbers.cpp: arithmetic, comparison, bool(), int(), float().
void add_number_slots(std::vector<PyType_Slot>& slots);
/// tensor_properties.cpp: shape, dtype, grad, ...
void add_property_slots(std::vector<PyType_Slot>& slots);
/// exchange.cpp: the buffer protocol.
void add_buffer_slots(std::vector<PyType_Slot>& slots);
/// indexing.cpp: x[key] and x[key] = value (del raises).
PyObject* tensor_getitem(PyObject* self, PyObject* key);
int tensor_setitem(PyObject* self, PyObject* key, PyObject* value);

/// create.cpp: a tensor from a number, nested sequences, an array or a tensor; a copy, of the given dtype or the data's
/// own (floats of Python: float32, integers: int64).
Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype);
/// exchange.cpp: a tensor on the memory of an object with the buffer protocol (a NumPy array).
Tensor tensor_from_buffer(const char* op, py::handle object);

/// autograd.cpp: the object that stands for a recorded operation in Python (anello.autograd.Node).
py::object make_node_object(const Ref<Node>& node);
/// hooks.cpp: visits the Python objects that hang on a tensor that nothing else holds: its hooks, for the garbage
/// collector.
int visit_attached(const Tensor& tensor, visitproc visit, void* arg);

}  // namespace anello::python
