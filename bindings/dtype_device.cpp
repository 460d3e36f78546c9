// anello.dtype and anello.device in Python.
// Main entry: bind_dtype_device(), dtype_object().
#include "bindings.h"

namespace anello::python {
namespace {

/// The Python-side value of a dtype; there is one object a dtype for the life of the process.
struct DTypeBox {
  DType dtype;
};
py::object* dtype_objects = nullptr;  // never freed: the objects live as long as the interpreter

constexpr DType kAll[] = {bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64};

struct DeviceBox {
  Device device;
};

}  // namespace

py::object dtype_object(DType dtype) { return dtype_objects[static_cast<int>(dtype)]; }

DType to_dtype(py::handle object) {
  if (py::isinstance<DTypeBox>(object)) return object.cast<DTypeBox&>().dtype;
  check<DTypeError>(py::isinstance<py::str>(object), "dtype", "a dtype is wanted, as anello.float32 or 'float32', not ",
                    std::string(py::repr(object)));
  return dtype_from_name(text_of("dtype", "a dtype", object));
}

void bind_dtype_device(py::module_& m) {
  py::class_<DTypeBox>(
      m, "dtype",
      R"(The type of a tensor's elements: anello.float32, float64, float16, bfloat16, int8, int16, int32, int64,
uint8 or bool. Two dtypes are the same object when they are equal.

>>> import anello
>>> anello.float32
anello.float32
>>> anello.float32.itemsize
4
)")
      .def_property_readonly(
          "name", [](const DTypeBox& b) { return std::string(name(b.dtype)); }, "'float32' and so on.")
      .def_property_readonly(
          "itemsize", [](const DTypeBox& b) { return item_size(b.dtype); }, "Bytes of one element.")
      .def_property_readonly(
          "is_floating_point", [](const DTypeBox& b) { return is_floating_point(b.dtype); },
          "True for the four float types.")
      .def("__repr__", [](const DTypeBox& b) { return concat("anello.", name(b.dtype)); })
      .def("__reduce__", [](const DTypeBox& b) { return std::string(name(b.dtype)); })
      .def("__copy__", [](const py::object& self) { return self; })
      .def("__deepcopy__", [](const py::object& self, const py::dict&) { return self; });
  dtype_objects = new py::object[kDTypeCount];
  for (DType dtype : kAll) {
    dtype_objects[static_cast<int>(dtype)] = py::cast(DTypeBox{dtype});
    m.attr(std::string(name(dtype)).c_str()) = dtype_object(dtype);
  }

  py::class_<DeviceBox>(m, "device",
                        R"(Where a tensor lives: device('cpu'), device('cuda'), device('cuda:1') or device('cuda', 1).

>>> import anello
>>> anello.device('cuda:1').index
1
)")
      .def(py::init([](const std::string& name, std::optional<int> index) {
             Device device = device_from_name(name);
             if (index) device.index = static_cast<int16_t>(*index);
             return DeviceBox{device};
           }),
           py::arg("type"), py::arg("index") = py::none())
      .def(py::init([](const DeviceBox& other) { return other; }), py::arg("device"))
      .def_property_readonly(
          "type", [](const DeviceBox& b) { return std::string(name(b.device.type)); }, "'cpu' or 'cuda'.")
      .def_property_readonly(
          "index", [](const DeviceBox& b) { return b.device.index; }, "Which one of its type.")
      .def("__str__", [](const DeviceBox& b) { return to_string(b.device); })
      .def("__repr__", [](const DeviceBox& b) { return concat("anello.device('", to_string(b.device), "')"); })
      .def("__hash__", [](const DeviceBox& b) { return static_cast<int>(b.device.type) * 1000 + b.device.index; })
      .def("__eq__",
           [](const DeviceBox& a, const py::object& b) {
             if (py::isinstance<py::str>(b)) return a.device == device_from_name(text_of("device", "a device", b));
             return py::isinstance<DeviceBox>(b) && a.device == b.cast<DeviceBox&>().device;
           })
      .def("__reduce__",
           [](const py::object& self) { return py::make_tuple(py::type::of(self), py::make_tuple(py::str(self))); });

  m.def("promote_types", py::overload_cast<DType, DType>(&promote_types), py::arg("type1"), py::arg("type2"),
        R"(The dtype of an operation on tensors of these two: any float beats any integer.

>>> import anello
>>> anello.promote_types(anello.int64, anello.float16)
anello.float16
)");
}

}  // namespace anello::python

namespace pybind11::detail {

bool type_caster<anello::DType>::load(handle source, bool) {
  namespace ap = anello::python;
  if (!isinstance<ap::DTypeBox>(source) && !isinstance<str>(source)) return false;
  value = ap::to_dtype(source);
  return true;
}

bool type_caster<anello::Device>::load(handle source, bool) {
  namespace ap = anello::python;
  if (isinstance<str>(source)) {
    value = anello::device_from_name(ap::text_of("device", "a device", source));
    return true;
  }
  if (!isinstance<ap::DeviceBox>(source)) return false;
  value = source.cast<ap::DeviceBox&>().device;
  return true;
}

handle type_caster<anello::Device>::cast(anello::Device device, return_value_policy, handle) {
  return pybind11::cast(anello::python::DeviceBox{device}).release();
}

}  // namespace pybind11::detail
