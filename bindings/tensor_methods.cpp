// Methods of tensors that are not differentiable functions: values, layout, conversion, gradients, copying and
// pickling. Main entry: bind_tensor_methods().
#include "bindings.h"

#include <anello/autograd/functions.h>

#include <cstring>

namespace anello::python {
namespace {

py::object element(const Tensor& x) {
  if (x.dtype() == bool_) return py::bool_(x.item<int64_t>() != 0);
  if (is_floating_point(x.dtype())) return py::float_(x.item<double>());
  return py::int_(x.item<int64_t>());
}

/// Nested lists of the values from `next` on.
template <class T, class Make>
py::object nested(const Shape& shape, int dim, const std::vector<T>& values, size_t& next, const Make& make) {
  if (dim == shape.size()) return make(values[next++]);
  py::list list(static_cast<size_t>(shape[dim]));
  for (int64_t i = 0; i < shape[dim]; ++i) list[static_cast<size_t>(i)] = nested(shape, dim + 1, values, next, make);
  return list;
}

py::object to_list(const Tensor& x) {
  size_t next = 0;
  if (is_floating_point(x.dtype()))
    return nested(x.shape(), 0, x.to_vector<double>(), next, [](double v) -> py::object { return py::float_(v); });
  if (x.dtype() == bool_)
    return nested(x.shape(), 0, x.to_vector<uint8_t>(), next,
                  [](uint8_t v) -> py::object { return py::bool_(v != 0); });
  return nested(x.shape(), 0, x.to_vector<int64_t>(), next, [](int64_t v) -> py::object { return py::int_(v); });
}

// --- Conversion ---

/// What x.to(...) was asked for.
struct Target {
  std::optional<DType> dtype;
  std::optional<Device> device;
};

void add_target(Target& target, const py::handle& value) {
  if (value.is_none()) return;
  if (is_tensor(value.ptr())) {
    target.dtype = tensor_of(value.ptr()).dtype();
    target.device = tensor_of(value.ptr()).device();
    return;
  }
  py::detail::make_caster<Device> device;
  if (!py::isinstance<py::str>(value)) {
    if (device.load(value, false))
      target.device = value.cast<Device>();
    else
      target.dtype = to_dtype(value);
    return;
  }
  const std::string text = text_of("to", "a dtype or device", value);
  try {
    target.dtype = dtype_from_name(text);
  } catch (const DTypeError&) {
    const bool device_like = text.rfind("cpu", 0) == 0 || text.rfind("cuda", 0) == 0;
    check<ValueError>(device_like, "to", "'", text,
                      "' is neither a dtype nor a device. Hint: 'float32', 'cpu', 'cuda:1'.");
    target.device = device_from_name(text);
  }
}

Target target_from_args(const py::args& args, const py::kwargs& kwargs) {
  Target target;
  for (const py::handle value : args) add_target(target, value);
  for (const auto& [name, value] : kwargs) {
    const auto key = name.cast<std::string>();
    if (key == "dtype")
      target.dtype = to_dtype(value);
    else if (key == "device")
      target.device = value.cast<Device>();
    else
      fail<TypeError>("to", "unknown option '", key,
                      "'. Hint: to(dtype), to(device), to(tensor), to(device=..., dtype=...).");
  }
  return target;
}

Tensor convert(const Tensor& x, const Target& target) {
  Tensor result = target.dtype ? cast(x, *target.dtype) : x;
  return target.device && result.device() != *target.device ? to(result, *target.device) : result;
}

void bind_conversions(Definer& define) {
  define.method(
      "to",
      [](const Tensor& x, const py::args& args, const py::kwargs& kwargs) {
        const Target target = target_from_args(args, kwargs);
        const GilRelease release(x.numel() >= kGilElements);
        return convert(x, target);
      },
      R"(The tensor in another dtype or on another device: to(anello.float64), to('cpu'), to(other). The tensor itself
when nothing changes.

>>> import anello
>>> anello.tensor([1, 2]).to(anello.float32).tolist()
[1.0, 2.0]
)");
  const std::pair<const char*, DType> names[] = {
      {"float", float32}, {"double", float64}, {"half", float16}, {"bfloat16", bfloat16}, {"char", int8},
      {"short", int16},   {"int", int32},      {"long", int64},   {"byte", uint8},        {"bool", bool_}};
  for (const auto& [method, dtype] : names)
    define.method(
        method,
        [dtype = dtype](const Tensor& x) {
          const GilRelease release(x.numel() >= kGilElements);
          return cast(x, dtype);
        },
        concat("to(anello.", name(dtype), ").\n\n>>> import anello\n>>> anello.tensor([1, 0]).", method,
               "().dtype\nanello.", name(dtype), "\n")
            .c_str());
  define.method(
      "cpu", [](const Tensor& x) { return to(x, cpu); },
      "to('cpu').\n\n>>> import anello\n>>> anello.ones(1).cpu().device\nanello.device('cpu')\n");
}

// --- Layout ---

void bind_layout(Definer& define) {
  define.method(
      "numel", [](const Tensor& x) { return x.numel(); },
      "Number of elements.\n\n>>> import anello\n>>> anello.zeros(2, 3).numel()\n6\n");
  define.method(
      "dim", [](const Tensor& x) { return x.dim(); },
      "Number of dims.\n\n>>> import anello\n>>> anello.zeros(2, 3).dim()\n2\n");
  define.method(
      "size",
      [](const Tensor& x, std::optional<int64_t> dim) -> py::object {
        if (dim) return py::int_(x.size(*dim));
        return py::cast(x.shape());
      },
      py::arg("dim") = py::none(),
      "The shape, or the size of one dim.\n\n>>> import anello\n>>> anello.zeros(2, 3).size(1)\n3\n");
  define.method(
      "stride", [](const Tensor& x) { return x.strides(); },
      "The strides in elements.\n\n>>> import anello\n>>> anello.zeros(2, 3).stride()\n(3, 1)\n");
  define.method(
      "is_contiguous", [](const Tensor& x) { return x.is_contiguous(); },
      "True when the elements lie in row-major order without gaps.\n\n>>> import anello\n>>> anello.zeros(2, "
      "3).T.is_contiguous()\nFalse\n");
  define.method(
      "is_floating_point", [](const Tensor& x) { return is_floating_point(x.dtype()); },
      "True for the float dtypes.\n\n>>> import anello\n>>> anello.arange(3).is_floating_point()\nFalse\n");
  define.method(
      "element_size", [](const Tensor& x) { return x.item_size(); },
      "Bytes of one element.\n\n>>> import anello\n>>> anello.zeros(1).element_size()\n4\n");
  define.method(
      "storage_offset", [](const Tensor& x) { return x.storage_offset(); },
      "Where the first element is in the memory, in elements.\n\n>>> import anello\n>>> "
      "anello.arange(5)[2:].storage_offset()\n2\n");
  define.method(
      "data_ptr", [](const Tensor& x) { return reinterpret_cast<size_t>(x.raw_data()); },
      "The address of the first element.\n\n>>> import anello\n>>> anello.zeros(1).data_ptr() != 0\nTrue\n");
}

// --- Copying and pickling ---

void check_leaf(const char* op, const Tensor& x) {
  check(x.is_leaf(), op,
        "the tensor was computed by an operation that autograd recorded, and its graph cannot go along. Hint: "
        "x.detach().");
}

Tensor rebuilt(const py::bytes& data, DType dtype, const Shape& shape, bool requires_grad) {
  const Tensor x = empty(shape, dtype);
  const std::string_view bytes = data;
  check<ValueError>(bytes.size() == x.nbytes(), "unpickle", bytes.size(), " bytes for a tensor of ", x.nbytes());
  if (!bytes.empty()) std::memcpy(x.raw_data(), bytes.data(), bytes.size());
  if (requires_grad) x.set_requires_grad(true);
  return x;
}

/// The attributes that a Python subclass added, or None.
py::object own_attributes(const py::object& self) {
  const py::object attributes = py::getattr(self, "__dict__", py::none());
  return attributes.is_none() || py::len(attributes) == 0 ? py::none() : attributes;
}

py::object copy_deep(const py::object& self, py::dict memo) {
  const py::int_ key(reinterpret_cast<size_t>(self.ptr()));
  if (memo.contains(key)) return memo[key];
  const Tensor& x = tensor_of(self.ptr());
  check_leaf("deepcopy", x);
  const Tensor copy = copy_as(x, x.dtype());
  if (x.requires_grad()) copy.set_requires_grad(true);
  if (x.grad().defined()) copy.set_grad(copy_as(x.grad(), x.dtype()));
  if (!x.name().empty()) copy.set_name(x.name());
  py::object result = py::reinterpret_steal<py::object>(wrap_as(Py_TYPE(self.ptr()), copy));
  if (!result) throw py::error_already_set();
  memo[key] = result;
  const py::object attributes = own_attributes(self);
  if (!attributes.is_none())
    result.attr("__dict__").attr("update")(py::module_::import("copy").attr("deepcopy")(attributes, memo));
  return result;
}

void bind_copying(Definer& define, py::module_& m) {
  m.def(
      "_rebuild_tensor",
      [](const py::type& type, const py::bytes& data, DType dtype, const Shape& shape, bool requires_grad) {
        auto* cls = reinterpret_cast<PyTypeObject*>(type.ptr());
        check<DTypeError>(PyType_IsSubtype(cls, tensor_type) != 0, "unpickle", "the class is not a Tensor");
        py::object result = py::reinterpret_steal<py::object>(wrap_as(cls, rebuilt(data, dtype, shape, requires_grad)));
        if (!result) throw py::error_already_set();
        return result;
      },
      py::arg("type"), py::arg("data"), py::arg("dtype"), py::arg("shape"), py::arg("requires_grad"),
      "Makes a tensor from its pickle.");
  define.method(
      "__reduce_ex__",
      [m = SharedObject(m)](const py::object& self, int) {
        const Tensor& x = tensor_of(self.ptr());
        check_leaf("pickle", x);
        const Tensor flat = contiguous_data(x);
        const py::bytes data(static_cast<const char*>(flat.raw_data()), flat.nbytes());
        return py::make_tuple(m.get().attr("_rebuild_tensor"),
                              py::make_tuple(py::type::of(self), data, x.dtype(), x.shape(), x.requires_grad()),
                              own_attributes(self));
      },
      "Pickling: the values and requires_grad, without the gradient.");
  define.method("__deepcopy__", copy_deep, "copy.deepcopy(x): a copy of values and gradient.");
  define.method(
      "__copy__",
      [](const py::object& self) {
        py::object result =
            py::reinterpret_steal<py::object>(wrap_as(Py_TYPE(self.ptr()), tensor_of(self.ptr()).detach()));
        tensor_of(result.ptr()).set_requires_grad(tensor_of(self.ptr()).requires_grad());
        return result;
      },
      "copy.copy(x): a new tensor on the same memory.");
}

// --- Gradients ---

void bind_gradients(Definer& define) {
  define.method(
      "backward",
      [](const Tensor& x, const std::optional<Tensor>& gradient, std::optional<bool> retain_graph, bool create_graph) {
        const GilRelease release;
        x.backward(gradient.value_or(Tensor()), retain_graph.value_or(create_graph), create_graph);
      },
      py::arg("gradient") = py::none(), py::arg("retain_graph") = py::none(), py::arg("create_graph") = false,
      R"(Computes the gradient of this tensor with respect to every leaf below it that requires one, and adds it to
their grad. `gradient` is the incoming gradient; a single element needs none. The graph is released unless
retain_graph; create_graph records the backward itself, for higher derivatives. Raises Error when a saved tensor was
changed in place or the graph was released.

>>> import anello
>>> x = anello.tensor(3.0, requires_grad=True)
>>> (x * x).backward()
>>> x.grad.item()
6.0
)");
  define.method(
      "requires_grad_",
      [](const py::object& self, bool requires_grad) {
        tensor_of(self.ptr()).set_requires_grad(requires_grad);
        return self;
      },
      py::arg("requires_grad") = true, R"(Sets requires_grad and returns the tensor.

>>> import anello
>>> anello.zeros(2).requires_grad_().requires_grad
True
)");
  define.method(
      "detach", [](const Tensor& x) { return x.detach(); }, R"(The same memory outside the graph.

>>> import anello
>>> x = anello.zeros(2, requires_grad=True)
>>> x.detach().requires_grad
False
)");
  define.method(
      "retain_grad", [](const Tensor& x) { x.retain_grad(); }, R"(Keeps grad of a tensor that is not a leaf too.

>>> import anello
>>> y = anello.ones(1, requires_grad=True) * 2
>>> y.retain_grad()
>>> (y * 3).backward()
>>> y.grad.tolist()
[3.0]
)");
  define.method(
      "zero_grad", [](const Tensor& x) { x.zero_grad(); }, R"(Makes grad None.

>>> import anello
>>> x = anello.tensor(3.0, requires_grad=True)
>>> (x * x).backward()
>>> x.zero_grad()
>>> x.grad is None
True
)");
}

}  // namespace

void bind_tensor_methods(py::module_& m) {
  Definer define(m);
  define.method("item", element, R"(The only element as a Python number. Raises ShapeError when there are more.

>>> import anello
>>> anello.tensor([2.5]).item()
2.5
)");
  define.method("tolist", to_list, R"(The elements as nested lists (a number for 0 dims).

>>> import anello
>>> anello.tensor([[1, 2]]).tolist()
[[1, 2]]
)");
  define.method(
      "__format__",
      [](const py::object& self, const py::str& spec) -> py::object {
        const Tensor& x = tensor_of(self.ptr());
        if (x.dim() == 0) return element(x).attr("__format__")(spec);
        check<DTypeError>(py::len(spec) == 0, "format", "a format is for one number, the tensor has shape ", x.shape());
        return py::str(self);
      },
      "format(x, spec) of a tensor of 0 dims is that of its number.");
  bind_conversions(define);
  bind_layout(define);
  bind_copying(define, m);
  bind_gradients(define);
}

}  // namespace anello::python
