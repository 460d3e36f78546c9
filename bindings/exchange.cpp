// NumPy exchange without a copy, over Python's buffer protocol (PEP 3118), so that nothing here needs NumPy to build.
// Main entry: tensor_from_buffer(), add_buffer_slots(), bind_exchange().
#include "bindings.h"
#include "tensor_type.h"

#include <cstring>

namespace anello::python {
namespace {

/// struct-module codes, native size and order.
const char* format_of(DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return "?";
    case DType::uint8:
      return "B";
    case DType::int8:
      return "b";
    case DType::int16:
      return "h";
    case DType::int32:
      return "i";
    case DType::int64:
      return sizeof(long) == 8 ? "l" : "q";  // as NumPy names it
    case DType::float16:
      return "e";
    case DType::float32:
      return "f";
    case DType::float64:
      return "d";
    case DType::bfloat16:
      return nullptr;
  }
  return nullptr;
}

/// The dtype of a one-letter format, by kind and size; `l` is 4 or 8 bytes, depending on where Python was built.
std::optional<DType> dtype_of_format(const char* op, const char* format, Py_ssize_t itemsize) {
  if (format == nullptr) return uint8;
  const char order = format[0];
  const bool has_order = std::strchr("@=<>!", order) != nullptr && order != '\0';
  check<DTypeError>(!((order == '>' || order == '!') && itemsize > 1), op, "the array is big-endian (format '", format,
                    "'). Hint: array.astype(array.dtype.newbyteorder('=')).");
  const char* code = has_order ? format + 1 : format;
  if (std::strlen(code) != 1) return std::nullopt;
  if (std::strchr("?", *code) != nullptr) return bool_;
  if (std::strchr("bhilqn", *code) != nullptr) {
    if (itemsize == 1) return int8;
    if (itemsize == 2) return int16;
    if (itemsize == 4) return int32;
    if (itemsize == 8) return int64;
  }
  if (*code == 'B') return uint8;
  if (*code == 'e') return float16;
  if (*code == 'f') return float32;
  if (*code == 'd') return float64;
  return std::nullopt;
}

/// Sizes and strides in the form a Py_buffer points to.
struct BufferShape {
  Py_ssize_t sizes[kMaxDims], strides[kMaxDims];
};

/// Why this tensor cannot be seen as an array, or null.
const char* obstacle(const Tensor& tensor) {
  if (!tensor.defined()) return "[numpy] the tensor is undefined";
  if (tensor.device().type != DeviceType::cpu) return "[numpy] the tensor is not on the CPU. Hint: x.to('cpu').";
  if (tensor.requires_grad())
    return "[numpy] the tensor takes part in gradients, which NumPy would not see. Hint: x.detach().";
  if (tensor.dtype() == bfloat16) return "[numpy] NumPy has no bfloat16. Hint: x.float().";
  return nullptr;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Tensor& tensor = tensor_of(self);
  view->obj = nullptr;
  const char* problem = obstacle(tensor);
  if (problem == nullptr && (flags & PyBUF_WRITABLE) != 0 && !tensor.storage()->writable())
    problem = "[buffer] the tensor's memory is read-only";
  if (problem == nullptr && (flags & PyBUF_STRIDES) != PyBUF_STRIDES && !tensor.is_contiguous())
    problem = "[buffer] the tensor is strided. Hint: x.contiguous().";
  auto* shape = problem == nullptr ? new (std::nothrow) BufferShape : nullptr;
  if (shape == nullptr) {
    PyErr_SetString(PyExc_BufferError, problem != nullptr ? problem : "[buffer] out of memory");
    return -1;
  }
  const auto item = static_cast<Py_ssize_t>(tensor.item_size());
  for (int i = 0; i < tensor.dim(); ++i) {
    shape->sizes[i] = tensor.shape()[i];
    shape->strides[i] = tensor.strides()[i] * item;
  }
  view->buf = tensor.raw_data();
  view->len = static_cast<Py_ssize_t>(tensor.nbytes());
  view->readonly = tensor.storage()->writable() ? 0 : 1;
  view->itemsize = item;
  view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format_of(tensor.dtype())) : nullptr;
  view->ndim = tensor.dim();
  view->shape = shape->sizes;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? shape->strides : nullptr;
  view->suboffsets = nullptr;
  view->internal = shape;
  Py_INCREF(self);
  view->obj = self;
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<BufferShape*>(view->internal); }

/// A Py_buffer as an object, so that SharedObject's rules for letting go without the GIL hold for it too.
py::object hold(py::handle source) {
  py::object view = py::reinterpret_steal<py::object>(PyMemoryView_FromObject(source.ptr()));
  if (!view) {
    PyErr_Clear();
    fail<DTypeError>("from_numpy", "a ", Py_TYPE(source.ptr())->tp_name,
                     " of this dtype cannot be shared; anello has bool, uint8, int8-64, float16-64");
  }
  return view;
}

py::object to_numpy(const py::object& self) {
  const Tensor& tensor = tensor_of(self.ptr());
  const char* problem = obstacle(tensor);
  if (problem != nullptr && tensor.defined() && tensor.dtype() == bfloat16) throw DTypeError(problem);
  if (problem != nullptr) throw Error(problem);
  return py::module_::import("numpy").attr("asarray")(
      py::reinterpret_steal<py::object>(PyMemoryView_FromObject(self.ptr())));
}

py::object array_protocol(const py::object& self, const py::object& dtype, const py::object& copy) {
  const py::object array = to_numpy(self);
  const bool converts =
      !dtype.is_none() && !py::object(array.attr("dtype")).equal(py::module_::import("numpy").attr("dtype")(dtype));
  check<ValueError>(!(converts && copy.ptr() == Py_False), "numpy",
                    "another dtype needs a copy, and copy=False forbids it");
  if (converts) return array.attr("astype")(dtype);
  return copy.ptr() == Py_True ? array.attr("copy")() : array;
}

}  // namespace

Tensor tensor_from_buffer(const char* op, py::handle object) {
  const py::object view = hold(object);
  const Py_buffer& buffer = *PyMemoryView_GET_BUFFER(view.ptr());
  const std::optional<DType> dtype = dtype_of_format(op, buffer.format, buffer.itemsize);
  check<DTypeError>(dtype && static_cast<Py_ssize_t>(item_size(*dtype)) == buffer.itemsize, op, "an array of format '",
                    buffer.format == nullptr ? "" : buffer.format,
                    "' has no dtype here; there are bool, uint8, int8-64, float16-64.");
  Shape shape, strides;
  for (int i = 0; i < buffer.ndim; ++i) {
    shape.push_back(buffer.shape[i]);
    check<ValueError>(buffer.strides[i] >= 0 || buffer.shape[i] < 2, op, "the array has a negative stride at dim ", i,
                      ". Hint: array.copy().");
    check<ValueError>(buffer.strides[i] % buffer.itemsize == 0, op, "the array's stride of ", buffer.strides[i],
                      " bytes at dim ", i, " is not a multiple of its item size ", buffer.itemsize,
                      ". Hint: array.copy().");
    strides.push_back(std::max<int64_t>(buffer.strides[i] / buffer.itemsize, 0));
  }
  check<ValueError>(reinterpret_cast<size_t>(buffer.buf) % static_cast<size_t>(buffer.itemsize) == 0, op,
                    "the array's memory is not aligned to its item size ", buffer.itemsize, ". Hint: array.copy().");
  return from_memory(
      buffer.buf, shape, *dtype, [held = SharedObject(view)]() mutable { held = SharedObject(); }, strides, cpu,
      buffer.readonly == 0);
}

void add_buffer_slots(std::vector<PyType_Slot>& slots) {
  slots.push_back({Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)});
  slots.push_back({Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)});
}

void bind_exchange(py::module_& m) {
  Definer define(m);
  m.def(
      "from_numpy",
      [](const py::object& array) {
        check<DTypeError>(PyObject_CheckBuffer(array.ptr()) != 0, "from_numpy", "an array is wanted, got ",
                          Py_TYPE(array.ptr())->tp_name, ". Hint: anello.tensor() takes lists and numbers.");
        return tensor_from_buffer("from_numpy", array);
      },
      py::arg("array"),
      R"(A tensor on the memory of a NumPy array (or any object with the buffer protocol), without a copy: a change in
one is seen in the other. The array is kept alive. In-place changes of a tensor on a read-only array raise. Raises
DTypeError for dtypes that anello has not (and for big-endian arrays), ValueError for negative strides.

>>> import anello, numpy
>>> array = numpy.zeros(3, dtype=numpy.float32)
>>> tensor = anello.from_numpy(array)
>>> array[0] = 5
>>> tensor.tolist()
[5.0, 0.0, 0.0]
)");
  define.method(
      "numpy", to_numpy,
      R"(A NumPy array on the same memory, without a copy. Raises Error for a tensor that takes part in gradients
(detach it first) and DTypeError for bfloat16, which NumPy has not (x.float() converts).

>>> import anello
>>> anello.arange(3).numpy()
array([0, 1, 2])
)");
  define.method("__array__", array_protocol, py::arg("dtype") = py::none(), py::arg("copy") = py::none(),
                "NumPy's conversion: numpy.asarray(x) shares the memory.");
  py::handle type(reinterpret_cast<PyObject*>(tensor_type));
  type.attr("__array_priority__") = 1000;
  type.attr("__array_ufunc__") = py::none();  // array * tensor asks the tensor, which says how to convert
}

}  // namespace anello::python
