// The one tensor type: an intrusive handle to storage, shape, strides, dtype, device and a slot that autograd fills.
// Main entry: Tensor, empty(), zeros(), from_vector(). Differentiable functions are in autograd/functions.h.
#pragma once

#include <anello/core/device.h>
#include <anello/core/dtype.h>
#include <anello/core/error.h>
#include <anello/core/shape.h>
#include <anello/core/storage.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace anello {

/// What autograd keeps on a tensor; only autograd knows what is inside.
struct GradSlot {
  virtual ~GradSlot() = default;
};

class Tensor;
class HookHandle;  // autograd/hooks.h

class TensorImpl final : public RefCounted {
 public:
  TensorImpl(Ref<Storage> s, const Shape& sizes, const Strides& steps, int64_t start, DType type)
      : storage(std::move(s)), shape(sizes), strides(steps), offset(start), dtype(type), history(storage->history()) {}
  Ref<Storage> storage;
  Shape shape;
  Strides strides;
  int64_t offset;  ///< in elements
  DType dtype;
  uint64_t
      history;  ///< the storage's history() that this tensor knows of: autograd refuses one that has been overtaken
  std::unique_ptr<GradSlot> grad_slot;
  void* host = nullptr;  ///< the object that stands for this tensor in a host language (Python), which owns the slot
};

/// A handle: copies are the same tensor. Cheap to copy (one counter). A default-constructed one is undefined; asking an
/// undefined tensor for anything but defined() raises Error. Different tensors may be used from different threads; one
/// tensor may be read from several threads.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return static_cast<bool>(impl_); }
  const Shape& shape() const { return impl().shape; }
  const Strides& strides() const { return impl().strides; }
  int dim() const { return impl().shape.size(); }
  int64_t size(int64_t dim) const;
  int64_t numel() const { return anello::numel(impl().shape); }
  DType dtype() const { return impl().dtype; }
  Device device() const { return impl().storage->device(); }
  int64_t storage_offset() const { return impl().offset; }
  const Ref<Storage>& storage() const { return impl().storage; }
  size_t item_size() const { return anello::item_size(dtype()); }
  size_t nbytes() const { return static_cast<size_t>(numel()) * item_size(); }
  bool is_contiguous() const { return anello::is_contiguous(impl().shape, impl().strides); }
  uint64_t version() const { return storage()->version(); }
  /// True when both handles are the same tensor.
  bool is(const Tensor& other) const { return impl_ == other.impl_; }

  /// Address of the first element. No dtype check.
  void* raw_data() const {
    const TensorImpl& i = impl();
    return static_cast<char*>(i.storage->data()) + i.offset * static_cast<int64_t>(anello::item_size(i.dtype));
  }
  /// Address of the first element as T; raises DTypeError unless dtype() stores T. The tensor may be strided. Writers
  /// call bump_version() afterwards.
  template <class T>
  T* data() const {
    check<DTypeError>(dtype() == dtype_of<T>, "data", "tensor is ", dtype(), ", not ", dtype_of<T>);
    return static_cast<T*>(raw_data());
  }
  /// The only element, converted to T; raises ShapeError unless numel() is 1.
  template <class T>
  T item() const {
    if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(item_double());
    else
      return static_cast<T>(item_int64());
  }
  /// All elements in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const;

  void bump_version() const { storage()->bump_version(); }

  // --- Autograd: declared here so that the one type is whole, defined in autograd/tensor.cpp. ---

  /// True for a leaf that asks for a gradient and for whatever was computed from one.
  bool requires_grad() const;
  /// Asks for a gradient. Raises DTypeError for integers, Error for a non-leaf that is set to false. Returns *this.
  const Tensor& set_requires_grad(bool requires_grad = true) const;
  /// True unless an operation that autograd recorded produced it.
  bool is_leaf() const;
  /// The accumulated gradient: undefined before backward() and after zero_grad().
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;
  /// Makes grad() undefined; a gradient destination stays.
  void zero_grad() const;
  /// Keeps grad() of a non-leaf too.
  void retain_grad() const;
  /// Computes the gradient of this tensor with respect to every leaf below it and adds it to their grad(). `gradient`
  /// defaults to 1 for a single element. Raises Error when a needed saved tensor was changed in place or released.
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false) const;
  /// The same data outside the graph; shares storage and version counter.
  Tensor detach() const;
  /// This leaf takes over the memory, dtype and device of `data` (same shape) and stays the same tensor: name,
  /// requires_grad and hooks stay, its gradient and gradient destination go. A graph that saved the old values raises
  /// in backward. Raises ShapeError for another shape, Error for a non-leaf.
  void set_data(const Tensor& data) const;
  /// Calls `hook(tensor)` once per backward, after this leaf's gradient received its last contribution.
  /// Raises Error on a tensor that is not a leaf requiring a gradient.
  HookHandle on_grad_ready(std::function<void(const Tensor&)> hook) const;
  /// Memory that this leaf's gradient is written and accumulated into; same shape and dtype, contiguous. Undefined
  /// removes it.
  void set_grad_destination(const Tensor& destination) const;
  Tensor grad_destination() const;
  /// A name for error messages and state dicts; "" unless set.
  std::string name() const;
  const Tensor& set_name(std::string name) const;

  TensorImpl& impl() const {
    if (!impl_) [[unlikely]]
      fail_undefined();
    return *impl_;
  }
  const Ref<TensorImpl>& ref() const { return impl_; }

 private:
  [[noreturn]] static void fail_undefined();
  double item_double() const;
  int64_t item_int64() const;
  Ref<TensorImpl> impl_;
};

/// A Python-like number: remembers whether it was an integer, so that promotion can treat it as weak.
class Scalar {
 public:
  Scalar(double value) : double_(value), int_(static_cast<int64_t>(value)), kind_(DType::float64) {}
  Scalar(float value) : Scalar(static_cast<double>(value)) {}
  Scalar(bool value) : double_(value), int_(value), kind_(DType::bool_) {}
  Scalar(int64_t value) : double_(static_cast<double>(value)), int_(value), kind_(DType::int64) {}
  Scalar(int value) : Scalar(static_cast<int64_t>(value)) {}
  double to_double() const { return double_; }
  int64_t to_int64() const { return int_; }
  /// bool_, int64 or float64
  DType kind() const { return kind_; }

 private:
  double double_;
  int64_t int_;
  DType kind_;
};
/// dtype of an operation of a tensor and a weak scalar: the tensor's unless the scalar is of a higher kind
/// (bool < integer < float); an integer tensor with a float scalar gives float32.
DType promote_types(DType tensor, const Scalar& scalar);

// --- Creation. Every function raises ShapeError on a negative size, DeviceError on an absent device. ---

/// Uninitialised, contiguous.
Tensor empty(const Shape& shape, DType dtype = float32, Device device = cpu);
/// empty() with the shape, dtype and device of another.
Tensor empty_like(const Tensor& other);
Tensor zeros(const Shape& shape, DType dtype = float32, Device device = cpu);
Tensor zeros_like(const Tensor& other);
Tensor ones(const Shape& shape, DType dtype = float32, Device device = cpu);
Tensor ones_like(const Tensor& other);
Tensor full(const Shape& shape, Scalar value, DType dtype = float32, Device device = cpu);
/// start, start + step, ... below end. Raises ValueError on step 0 or a step away from end.
Tensor arange(Scalar start, Scalar end, Scalar step = 1, DType dtype = int64, Device device = cpu);
/// `count` values from start to end, both included.
Tensor linspace(double start, double end, int64_t count, DType dtype = float32, Device device = cpu);
/// Identity matrix of n rows and m columns (m < 0: n).
Tensor eye(int64_t n, int64_t m = -1, DType dtype = float32, Device device = cpu);
/// Copies a vector; raises ShapeError unless its size is numel(shape).
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, Device device = cpu);
template <class T>
Tensor from_vector(const std::vector<T>& values) {
  return from_vector(values, Shape{static_cast<int64_t>(values.size())});
}
/// A tensor on memory of the caller, without a copy; `release` is called when the last view goes. `strides` in elements
/// (empty: row-major).
Tensor from_memory(void* data, const Shape& shape, DType dtype, std::function<void()> release,
                   const Strides& strides = {}, Device device = cpu, bool writable = true);

// --- Plain data movement, never recorded by autograd; in-place ones bump the version counter. ---

/// Raises Error when the memory is read-only, or when elements share a place in it (a broadcast view).
void require_writable(std::string_view op, const Tensor& tensor);

/// Copies values with conversion and broadcasting of src into dst (any strides). Raises ShapeError when src does not
/// broadcast.
void copy_into(const Tensor& dst, const Tensor& src);
void fill(const Tensor& dst, Scalar value);
/// A contiguous copy of the given dtype.
Tensor copy_as(const Tensor& src, DType dtype);
/// Another window on the same storage: shape, strides and offset in elements. Checks that it lies inside.
Tensor as_strided(const Tensor& base, const Shape& shape, const Strides& strides, int64_t offset);
/// base expanded by stride 0 to a shape it broadcasts to (no copy).
Tensor expand_view(const Tensor& base, const Shape& shape);
/// A view of the new shape when strides allow it, else nothing. Sizes must be final (no -1).
std::optional<Tensor> try_reshape_view(const Tensor& base, const Shape& shape);
/// src itself when contiguous, else a contiguous copy. Not recorded.
Tensor contiguous_data(const Tensor& src);
/// src on another device (a copy unless it is there already). Not recorded.
Tensor copy_to_device(const Tensor& src, Device device);

/// Values as nested brackets, NumPy style, shortened beyond 1,000 elements: "tensor([[1, 2]], dtype=int64)".
std::string to_string(const Tensor& tensor);
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace anello
