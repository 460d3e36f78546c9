// Tensor handles, creation and views.
// Main entry: empty(), as_strided(), try_reshape_view().
#include <anello/core/kernels/elementwise.h>
#include <anello/core/operand.h>
#include <anello/core/registry.h>
#include <anello/core/tensor.h>

#include <cmath>

namespace anello {
namespace detail {
/// empty() for another function, whose name its errors bear.
Tensor empty_for(std::string_view op, const Shape& shape, DType dtype, Device device);
}  // namespace detail

int64_t Tensor::size(int64_t d) const { return impl().shape[normalize_dim("size", d, dim())]; }

void Tensor::fail_undefined() {
  fail<Error>("tensor",
              "there is no tensor: None stands for it, or in C++ one that was default-constructed or moved from.");
}

double Tensor::item_double() const {
  check<ShapeError>(numel() == 1, "item", "shape ", shape(), " has ", numel(), " elements, not 1.");
  if (dtype() == DType::int64) return static_cast<double>(*data<int64_t>());
  return *copy_as(*this, DType::float64).data<double>();
}

int64_t Tensor::item_int64() const {
  check<ShapeError>(numel() == 1, "item", "shape ", shape(), " has ", numel(), " elements, not 1.");
  return *copy_as(*this, DType::int64).data<int64_t>();
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor flat = copy_as(*this, dtype_of<T>);
  const T* values = flat.data<T>();
  return std::vector<T>(values, values + flat.numel());
}
template std::vector<float> Tensor::to_vector() const;
template std::vector<double> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<int16_t> Tensor::to_vector() const;
template std::vector<int8_t> Tensor::to_vector() const;
template std::vector<uint8_t> Tensor::to_vector() const;
template std::vector<bool> Tensor::to_vector() const;
template std::vector<Float16> Tensor::to_vector() const;
template std::vector<BFloat16> Tensor::to_vector() const;

DType promote_types(DType tensor, const Scalar& scalar) {
  if (scalar.kind() == DType::float64) return is_floating_point(tensor) ? tensor : DType::float32;
  if (scalar.kind() == DType::int64) return tensor == DType::bool_ ? DType::int64 : tensor;
  return tensor;
}

namespace {

/// Bytes of a contiguous tensor. Raises ShapeError on a negative size and where 64 bits do not count them; a 0 among
/// the sizes does not help, since strides are counted without it.
int64_t checked_bytes(std::string_view op, const Shape& shape, DType dtype) {
  auto bytes = static_cast<int64_t>(item_size(dtype));
  for (int64_t size : shape) {
    check<ShapeError>(size >= 0, op, "shape ", shape, " has a negative size.");
    check<ShapeError>(!__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes), op, "shape ", shape, " of ",
                      dtype, " has more bytes than 64 bits count.");
  }
  return numel(shape) == 0 ? 0 : bytes;
}

/// A view: it knows as much of the memory's history as its base does.
Tensor view_of(const Tensor& base, const Shape& shape, const Strides& strides, int64_t offset) {
  auto impl = make_ref<TensorImpl>(base.storage(), shape, strides, offset, base.dtype());
  impl->history = base.impl().history;
  return Tensor(std::move(impl));
}

}  // namespace

Tensor detail::empty_for(std::string_view op, const Shape& shape, DType dtype, Device device) {
  const int64_t bytes = checked_bytes(op, shape, dtype);
  if (device.type != DeviceType::cpu) require_available(op, device);
  return Tensor(make_ref<TensorImpl>(Storage::allocate(static_cast<size_t>(bytes), device), shape,
                                     contiguous_strides(shape), 0, dtype));
}

namespace {
Tensor filled(std::string_view op, const Shape& shape, Scalar value, DType dtype, Device device) {
  Tensor t = detail::empty_for(op, shape, dtype, device);
  fill(t, value);
  return t;
}
}  // namespace

Tensor empty(const Shape& shape, DType dtype, Device device) {
  return detail::empty_for("empty", shape, dtype, device);
}
Tensor empty_like(const Tensor& other) { return empty(other.shape(), other.dtype(), other.device()); }
Tensor zeros(const Shape& shape, DType dtype, Device device) { return filled("zeros", shape, 0, dtype, device); }
Tensor zeros_like(const Tensor& other) { return zeros(other.shape(), other.dtype(), other.device()); }
Tensor ones(const Shape& shape, DType dtype, Device device) { return filled("ones", shape, 1, dtype, device); }
Tensor ones_like(const Tensor& other) { return ones(other.shape(), other.dtype(), other.device()); }

Tensor full(const Shape& shape, Scalar value, DType dtype, Device device) {
  return filled("full", shape, value, dtype, device);
}

Tensor arange(Scalar start, Scalar end, Scalar step, DType dtype, Device device) {
  const bool integers = start.kind() != DType::float64 && end.kind() != DType::float64 && step.kind() != DType::float64;
  const double a = start.to_double(), b = end.to_double(), s = step.to_double();
  check<ValueError>(s != 0 && std::isfinite(s) && std::isfinite(a) && std::isfinite(b), "arange", "start ", a, ", end ",
                    b, ", step ", s, ": the step must not be 0 and all must be finite.");
  check<ValueError>(a == b || (b > a) == (s > 0), "arange", "step ", s, " leads away from end: start ", a, ", end ", b,
                    ".");
  int64_t count;
  if (integers) {
    const int64_t distance = end.to_int64() - start.to_int64(), k = step.to_int64();
    count = distance / k + (distance % k != 0);
  } else {
    count = static_cast<int64_t>(std::ceil((b - a) / s));
  }
  Tensor t = detail::empty_for("arange", {count}, dtype, device);
  const ArangeParams params{t.raw_data(), count, dtype, a, s, start.to_int64(), step.to_int64()};
  // The key dtype is the result's; fractional steps must not be cut to integers before they are multiplied.
  if (integers || is_floating_point(dtype)) {
    launch<kArange>(device, dtype, params);
    return t;
  }
  return copy_as(arange(start, end, step, DType::float64, device), dtype);
}

Tensor linspace(double start, double end, int64_t count, DType dtype, Device device) {
  check<ValueError>(count >= 0, "linspace", "count is ", count, ".");
  Tensor t = detail::empty_for("linspace", {count}, DType::float64, device);
  const double step = count > 1 ? (end - start) / static_cast<double>(count - 1) : 0;
  launch<kArange>(device, DType::float64, {t.raw_data(), count, DType::float64, start, step, 0, 0});
  if (count > 1) fill(as_strided(t, {}, {}, count - 1), end);
  return dtype == DType::float64 ? t : copy_as(t, dtype);
}

Tensor eye(int64_t n, int64_t m, DType dtype, Device device) {
  if (m < 0) m = n;
  Tensor t = filled("eye", {n, m}, 0, dtype, device);
  fill(as_strided(t, {std::min(n, m)}, {m + 1}, 0), 1);
  return t;
}

template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, Device device) {
  check<ShapeError>(static_cast<int64_t>(values.size()) == numel(shape), "from_vector", values.size(),
                    " values do not fill shape ", shape, " of ", numel(shape), " elements.");
  Tensor t = empty(shape, dtype_of<T>, cpu);
  std::copy(values.begin(), values.end(), t.data<T>());
  return copy_to_device(t, device);
}
template Tensor from_vector(const std::vector<float>&, const Shape&, Device);
template Tensor from_vector(const std::vector<double>&, const Shape&, Device);
template Tensor from_vector(const std::vector<int64_t>&, const Shape&, Device);
template Tensor from_vector(const std::vector<int32_t>&, const Shape&, Device);
template Tensor from_vector(const std::vector<int16_t>&, const Shape&, Device);
template Tensor from_vector(const std::vector<int8_t>&, const Shape&, Device);
template Tensor from_vector(const std::vector<uint8_t>&, const Shape&, Device);
template Tensor from_vector(const std::vector<bool>&, const Shape&, Device);
template Tensor from_vector(const std::vector<Float16>&, const Shape&, Device);
template Tensor from_vector(const std::vector<BFloat16>&, const Shape&, Device);

namespace {
/// Elements from the first to one past the last that a window touches; 0 for an empty one. Raises on overflow or
/// negative strides.
int64_t window_extent(const Shape& shape, const Strides& strides) {
  int64_t extent = 1;
  for (int i = 0; i < shape.size(); ++i) {
    check<ShapeError>(shape[i] >= 0 && strides[i] >= 0, "as_strided", "shape ", shape, " with strides ", strides,
                      ": sizes and strides must not be negative. Hint: use flip.");
    if (shape[i] == 0) return 0;
    int64_t step;
    check<ShapeError>(
        !__builtin_mul_overflow(shape[i] - 1, strides[i], &step) && !__builtin_add_overflow(extent, step, &extent),
        "as_strided", "shape ", shape, " with strides ", strides, " overflows 64 bits.");
  }
  return extent;
}
}  // namespace

Tensor from_memory(void* data, const Shape& shape, DType dtype, std::function<void()> release, const Strides& strides,
                   Device device, bool writable) {
  const Strides steps = strides.size() == shape.size() ? strides : contiguous_strides(shape);
  check<ShapeError>(strides.empty() || strides.size() == shape.size(), "from_memory", "shape ", shape, " and strides ",
                    strides, " have different lengths.");
  const int64_t extent = window_extent(shape, steps);
  auto storage =
      Storage::external(data, static_cast<size_t>(extent) * item_size(dtype), device, std::move(release), writable);
  return Tensor(make_ref<TensorImpl>(std::move(storage), shape, steps, 0, dtype));
}

Tensor as_strided(const Tensor& base, const Shape& shape, const Strides& strides, int64_t offset) {
  check<ShapeError>(shape.size() == strides.size(), "as_strided", "shape ", shape, " and strides ", strides,
                    " have different lengths.");
  const int64_t extent = window_extent(shape, strides);
  const auto room = static_cast<int64_t>(base.storage()->bytes() / base.item_size());
  check<ShapeError>(offset >= 0 && (extent == 0 || extent <= room - offset), "as_strided", "shape ", shape,
                    " with strides ", strides, " at offset ", offset, " leaves the storage of ", room, " elements.");
  return view_of(base, shape, strides, offset);
}

Tensor expand_view(const Tensor& base, const Shape& shape) {
  const Shape& from = base.shape();
  const int shift = shape.size() - from.size();
  const auto fits = [&] {
    if (shift < 0) return false;
    for (int i = 0; i < from.size(); ++i)
      if (from[i] != 1 && from[i] != shape[i + shift]) return false;
    return true;
  };
  check<ShapeError>(fits(), "broadcast_to", "shape ", from, " does not broadcast to ", shape,
                    ". Hint: sizes must be equal or 1.");
  checked_bytes("broadcast_to", shape, base.dtype());
  Strides strides = Shape::filled(shape.size(), 0);
  for (int i = 0; i < from.size(); ++i)
    strides[i + shift] = from[i] == 1 && shape[i + shift] != 1 ? 0 : base.strides()[i];
  return view_of(base, shape, strides, base.storage_offset());
}

std::optional<Tensor> try_reshape_view(const Tensor& base, const Shape& shape) {
  const auto view = [&](const Strides& strides) { return view_of(base, shape, strides, base.storage_offset()); };
  if (base.is_contiguous()) return view(contiguous_strides(shape));
  // Each run of source dims that is contiguous in itself may be cut anew; a new dim must not span two runs.
  const Shape& from = base.shape();
  Strides strides = Shape::filled(shape.size(), 1);
  int to = shape.size() - 1;
  for (int i = from.size() - 1; i >= 0;) {
    const int64_t step = base.strides()[i];
    int64_t run = from[i];
    int first = i;
    while (first > 0 && (from[first - 1] == 1 || run == 1 || base.strides()[first - 1] == run * step)) {
      if (run == 1 && from[first - 1] != 1) break;
      run *= from[--first];
    }
    int64_t covered = 1;
    while (to >= 0 && (covered < run || shape[to] == 1)) {
      strides[to] = covered * step;
      covered *= shape[to--];
    }
    if (covered != run) return std::nullopt;
    i = first - 1;
  }
  for (; to >= 0; --to) {
    if (shape[to] != 1) return std::nullopt;
  }
  return view(strides);
}

}  // namespace anello
