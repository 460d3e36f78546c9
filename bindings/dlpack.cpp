// DLPack exchange without a copy, in both forms of the protocol (plain capsules and versioned ones with a read-only
// flag). Main entry: bind_dlpack(). Structures as in the DLPack C interface,
// https://dmlc.github.io/dlpack/latest/c_api.html.
#include "bindings.h"

#include <cstdint>

namespace anello::python {
namespace {

enum DeviceKind : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3 };
enum TypeKind : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };
constexpr uint64_t kReadOnly = 1;

struct DLDevice {
  int32_t kind, index;
};
struct DLDataType {
  uint8_t kind, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct Managed {
  DLTensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  DLTensor tensor;
};

template <class M>
constexpr const char* kName = "dltensor";
template <>
constexpr const char* kName<ManagedVersioned> = "dltensor_versioned";
template <class M>
constexpr const char* kUsedName = "used_dltensor";
template <>
constexpr const char* kUsedName<ManagedVersioned> = "used_dltensor_versioned";

DLDataType type_of(DType dtype) {
  const auto bits = static_cast<uint8_t>(item_size(dtype) * 8);
  if (dtype == bool_) return {kBool, bits, 1};
  if (dtype == bfloat16) return {kBfloat, bits, 1};
  if (dtype == uint8) return {kUInt, bits, 1};
  return {is_floating_point(dtype) ? kFloat : kInt, bits, 1};
}

DType dtype_of_type(DLDataType type) {
  if (type.lanes == 1) {
    for (int i = 0; i < kDTypeCount; ++i) {
      const DLDataType own = type_of(static_cast<DType>(i));
      if (own.kind == type.kind && own.bits == type.bits) return static_cast<DType>(i);
    }
  }
  fail<DTypeError>("from_dlpack", "the type (code ", int{type.kind}, ", ", int{type.bits}, " bits, ", type.lanes,
                   " lanes) has no dtype here; there are bool, uint8, int8-64, float16-64, bfloat16.");
}

DLDevice device_of(const Tensor& tensor) {
  return {tensor.device().type == DeviceType::cpu ? kCpu : kCuda, tensor.device().index};
}

/// What an exported tensor keeps alive.
struct Exported {
  Tensor tensor;
  int64_t shape[kMaxDims], strides[kMaxDims];
};

template <class M>
void delete_exported(M* managed) {
  delete static_cast<Exported*>(managed->context);
  delete managed;
}

template <class M>
void delete_unused(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kName<M>) == 0) return;  // somebody took it
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, kName<M>));
  managed->deleter(managed);
}

template <class M>
py::object export_as(const Tensor& tensor) {
  auto exported = std::make_unique<Exported>();
  exported->tensor = tensor;
  std::copy(tensor.shape().begin(), tensor.shape().end(), exported->shape);
  std::copy(tensor.strides().begin(), tensor.strides().end(), exported->strides);
  auto managed = std::make_unique<M>();
  managed->tensor = {tensor.raw_data(),
                     device_of(tensor),
                     tensor.dim(),
                     type_of(tensor.dtype()),
                     exported->shape,
                     exported->strides,
                     0};
  managed->context = exported.release();
  managed->deleter = delete_exported<M>;
  if constexpr (std::is_same_v<M, ManagedVersioned>) {
    managed->major = 1;
    managed->minor = 0;
    managed->flags = tensor.storage()->writable() ? 0 : kReadOnly;
  }
  py::object capsule = py::reinterpret_steal<py::object>(PyCapsule_New(managed.get(), kName<M>, delete_unused<M>));
  if (!capsule) {
    managed->deleter(managed.release());
    throw py::error_already_set();
  }
  managed.release();
  return capsule;
}

py::object export_tensor(const Tensor& tensor, const py::object& stream,
                         const std::optional<std::pair<int, int>>& max_version,
                         const std::optional<std::pair<int, int>>& dl_device, std::optional<bool> copy) {
  (void)stream;  // the CPU has none
  if (tensor.requires_grad())
    throw py::buffer_error("[dlpack] the tensor takes part in gradients, which would be lost. Hint: x.detach().");
  const DLDevice own = device_of(tensor);
  if (dl_device && (dl_device->first != own.kind || dl_device->second != own.index))
    throw py::buffer_error("[dlpack] the tensor is on another device than asked for. Hint: x.to(device).");
  const Tensor exported = copy.value_or(false) ? copy_as(tensor, tensor.dtype()) : tensor;
  if (max_version && max_version->first >= 1) return export_as<ManagedVersioned>(exported);
  if (!exported.storage()->writable())
    throw py::buffer_error(
        "[dlpack] the tensor's memory is read-only, which an old consumer cannot be told. Hint: x.clone().");
  return export_as<Managed>(exported);
}

/// Shares the memory of a capsule and marks it as taken; the producer's deleter runs when the last tensor on it goes.
template <class M>
Tensor import_as(const py::capsule& capsule, bool writable) {
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule.ptr(), kName<M>));
  const DLTensor& source = managed->tensor;
  check<DeviceError>(source.device.kind == kCpu || source.device.kind == kCudaHost, "from_dlpack",
                     "the tensor is on device type ", source.device.kind,
                     ", not on the CPU. Hint: move it there first.");
  const DType dtype = dtype_of_type(source.dtype);
  Shape shape, strides;
  for (int i = 0; i < source.ndim; ++i) {
    shape.push_back(source.shape[i]);
    if (source.strides == nullptr) continue;
    check<ValueError>(source.strides[i] >= 0 || source.shape[i] < 2, "from_dlpack", "the stride at dim ", i,
                      " is negative. Hint: copy it first.");
    strides.push_back(std::max<int64_t>(source.strides[i], 0));
  }
  if (source.strides == nullptr) strides = contiguous_strides(shape);
  // The deleter may be Python's, so it runs under the GIL, by way of a capsule that holds the structure.
  py::capsule holder(managed, "anello_dlpack", [](PyObject* held) {
    auto* taken = static_cast<M*>(PyCapsule_GetPointer(held, "anello_dlpack"));
    if (taken->deleter != nullptr) taken->deleter(taken);
  });
  PyCapsule_SetName(capsule.ptr(), kUsedName<M>);
  return from_memory(
      static_cast<char*>(source.data) + source.byte_offset, shape, dtype,
      [held = SharedObject(holder)]() mutable { held = SharedObject(); }, strides, cpu, writable);
}

Tensor import_capsule(const py::capsule& capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kName<ManagedVersioned>) != 0) {
    const auto* managed = static_cast<ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kName<ManagedVersioned>));
    check<ValueError>(managed->major == 1, "from_dlpack", "DLPack version ", managed->major,
                      " is not known here, 1 is.");
    return import_as<ManagedVersioned>(capsule, (managed->flags & kReadOnly) == 0);
  }
  check<ValueError>(PyCapsule_IsValid(capsule.ptr(), kName<Managed>) != 0, "from_dlpack",
                    "the capsule holds no DLPack tensor, or it was used before.");
  return import_as<Managed>(capsule, true);
}

Tensor import_object(const py::object& object) {
  if (PyCapsule_CheckExact(object.ptr())) return import_capsule(py::reinterpret_borrow<py::capsule>(object));
  check<DTypeError>(py::hasattr(object, "__dlpack__"), "from_dlpack", "a ", Py_TYPE(object.ptr())->tp_name,
                    " has no __dlpack__");
  py::object capsule;
  try {
    capsule = object.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(1, 0));
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_TypeError)) throw;  // a producer from before versions
    capsule = object.attr("__dlpack__")();
  }
  return import_capsule(py::reinterpret_borrow<py::capsule>(capsule));
}

}  // namespace

void bind_dlpack(py::module_& m) {
  Definer define(m);
  define.method("__dlpack__", export_tensor, py::kw_only(), py::arg("stream") = py::none(),
                py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(), py::arg("copy") = py::none(),
                "A DLPack capsule on this tensor's memory, for from_dlpack() of another library.");
  define.method(
      "__dlpack_device__",
      [](const Tensor& x) {
        const DLDevice device = device_of(x);
        return std::make_pair(device.kind, device.index);
      },
      "(device type, index) in DLPack's numbers; the CPU is (1, 0).");
  m.def("from_dlpack", import_object, py::arg("x"),
        R"(A tensor on the memory of another library's tensor (anything with __dlpack__), without a copy; read-only
memory stays read-only. Raises DTypeError for a type that anello has not, DeviceError for memory that is not on the
CPU.

>>> import anello, numpy
>>> anello.from_dlpack(numpy.arange(3)).tolist()
[0, 1, 2]
)");
}

}  // namespace anello::python
