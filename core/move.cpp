// Plain data movement: copies, fills, conversions.
// Main entry: copy_into(), copy_as().
#include <anello/core/kernels/elementwise.h>
#include <anello/core/operand.h>
#include <anello/core/registry.h>
#include <anello/core/tensor.h>

#include <cstring>

namespace anello {
namespace {

void require_writable(const char* op, const Tensor& t) {
  check<Error>(t.storage()->writable(), op, "the tensor's memory is read-only. Hint: clone it first.");
}

}  // namespace

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
