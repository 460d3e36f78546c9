// Plain data movement: copies, fills, conversions.
// Main entry: copy_into(), copy_as().
#include <anello/core/kernels/elementwise.h>
#include <anello/core/operand.h>
#include <anello/core/registry.h>
#include <anello/core/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace anello {
namespace {

/// Raises ValueError unless an integer dtype has the value (a fraction is cut off): no number wraps round in silence.
void check_fits(const Scalar& value, DType dtype) {
  if (!is_integral(dtype) || dtype == DType::bool_) return;
  const int bits = 8 * static_cast<int>(item_size(dtype)) - (dtype == DType::uint8 ? 0 : 1);
  const double limit = std::ldexp(1.0, bits), v = value.to_double();
  const bool fits = value.kind() == DType::float64 ? v > (dtype == DType::uint8 ? -1 : -limit - 1) && v < limit
                    : bits == 63                   ? true
                                                   : v >= (dtype == DType::uint8 ? 0 : -limit) && v < limit;
  check<ValueError>(fits, "fill", v, " does not fit in ", dtype, ". Hint: use a larger dtype.");
}

/// A dim along which elements share places in memory with others, or -1: taken in the order of their strides, each dim
/// must step over all before it.
int overlapping_dim(const Tensor& t) {
  if (t.is_contiguous()) return -1;
  std::array<int, kMaxDims> order;
  int count = 0;
  for (int i = 0; i < t.dim(); ++i) {
    if (t.shape()[i] == 0) return -1;
    if (t.shape()[i] != 1) order[static_cast<size_t>(count++)] = i;
  }
  std::sort(order.begin(), order.begin() + count, [&](int a, int b) { return t.strides()[a] < t.strides()[b]; });
  int64_t reach = 0;
  for (int i = 0; i < count; ++i) {
    const int d = order[static_cast<size_t>(i)];
    if (t.strides()[d] <= reach) return d;
    reach += (t.shape()[d] - 1) * t.strides()[d];
  }
  return -1;
}

}  // namespace

void require_writable(std::string_view op, const Tensor& t) {
  check<Error>(t.storage()->writable(), op, "the tensor's memory is read-only. Hint: clone it first.");
  const int dim = overlapping_dim(t);
  check<Error>(dim < 0, op, "dim ", dim, " of shape ", t.shape(),
               " is broadcast: its elements share places in memory. Hint: clone it first.");
}

void copy_into(const Tensor& dst, const Tensor& src) {
  require_writable("copy", dst);
  check<DeviceError>(dst.device() == src.device(), "copy", "devices differ: ", dst.device(), " and ", src.device(),
                     ". Hint: use to().");
  const Tensor from = src.shape() == dst.shape() ? src : expand_view(src, dst.shape());
  if (dst.dtype() == src.dtype() && dst.is_contiguous() && from.is_contiguous() && dst.numel() < 16384) {
    // Small and plain: no partition to set up. memmove, since views of one storage may overlap.
    if (const size_t bytes = dst.nbytes()) std::memmove(dst.raw_data(), from.raw_data(), bytes);
  } else if (dst.numel() > 0) {
    UnaryParams params;
    params.out = operand(dst, dst.shape());
    params.x = operand(from, dst.shape());
    set_sizes(params, dst.shape());
    launch<kCopy>(dst.device(), src.dtype(), params);
  }
  dst.bump_version();
}

void fill(const Tensor& dst, Scalar value) {
  require_writable("fill", dst);
  check_fits(value, dst.dtype());
  if (dst.numel() > 0) {
    FillParams params;
    params.out = operand(dst, dst.shape());
    set_sizes(params, dst.shape());
    params.value = value.to_double();
    params.int_value = dst.dtype() == DType::bool_ ? value.to_double() != 0 : value.to_int64();
    launch<kFill>(dst.device(), dst.dtype(), params);
  }
  dst.bump_version();
}

Tensor copy_as(const Tensor& src, DType dtype) {
  Tensor out = empty(src.shape(), dtype, src.device());
  copy_into(out, src);
  return out;
}

Tensor contiguous_data(const Tensor& src) { return src.is_contiguous() ? src : copy_as(src, src.dtype()); }

Tensor copy_to_device(const Tensor& src, Device device) {
  if (src.device() == device) return src;
  require_available("to", device);
  fail<DeviceError>("to", "no way from ", src.device(), " to ", device, ".");
}

}  // namespace anello
