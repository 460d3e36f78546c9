// Functions that change shape, order or place of elements, not their values.
// Main entry: reshape(), permute(), slice(), cat(), ... of autograd/functions.h.
#include <anello/autograd/functions.h>
#include <anello/autograd/functions/window.h>
#include <anello/autograd/node.h>

#include <algorithm>

namespace anello {
namespace {

/// Replaces the -1 in `shape` and checks that the elements fit.
Shape resolve_shape(const Tensor& x, const Shape& shape) {
  Shape result = shape;
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) {
      check<ShapeError>(shape[i] >= 0, "reshape", "shape ", shape, " has a negative size.");
      check<ShapeError>(!__builtin_mul_overflow(known, shape[i], &known), "reshape", "shape ", shape, " overflows.");
      continue;
    }
    check<ShapeError>(unknown < 0, "reshape", "shape ", shape, " has more than one -1.");
    unknown = i;
  }
  const int64_t n = x.numel();
  const bool fits = unknown < 0 ? known == n : known != 0 && n % known == 0;
  check<ShapeError>(fits, "reshape", "shape ", x.shape(), " of ", n, " elements does not fit into ", shape, ".");
  if (unknown >= 0) result[unknown] = n / known;
  return result;
}

Tensor strided_view(const Tensor& x, const Shape& shape, const Strides& strides) {
  return as_strided(x, shape, strides, x.storage_offset());
}

/// `like` for the dims of a list: same device, dims and sizes outside dim.
void check_joinable(const char* name, const std::vector<Tensor>& tensors, int dim) {
  const Tensor& first = tensors[0];
  for (size_t i = 1; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    check<DeviceError>(t.device() == first.device(), name, "tensor ", i, " is on ", t.device(), ", tensor 0 on ",
                       first.device(), ". Hint: use to().");
    bool same = t.dim() == first.dim();
    for (int d = 0; same && d < t.dim(); ++d) same = d == dim || t.shape()[d] == first.shape()[d];
    check<ShapeError>(same, name, "tensor ", i, " of shape ", t.shape(), " does not fit tensor 0 of shape ",
                      first.shape(), dim < 0 ? std::string(".") : concat(" outside dim ", dim, "."));
  }
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  const Shape final_shape = resolve_shape(x, shape);
  if (final_shape == x.shape()) return x;
  const auto backward = [](Backward& bw) { bw.give(0, reshape(bw.grad(), bw.input_shape(0))); };
  if (auto view = try_reshape_view(x, final_shape)) return record_view("reshape", {&x}, {}, *view, backward);
  return record("reshape", {&x}, {}, *try_reshape_view(contiguous_data(x), final_shape), backward);
}

Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim) {
  const int first = normalize_dim("flatten", start_dim, x.dim()), last = normalize_dim("flatten", end_dim, x.dim());
  check<ShapeError>(first <= last, "flatten", "start_dim ", start_dim, " comes after end_dim ", end_dim, " for shape ",
                    x.shape(), ".");
  Shape shape;
  int64_t merged = 1;
  for (int i = 0; i < first; ++i) shape.push_back(x.shape()[i]);
  for (int i = first; i <= last && i < x.dim(); ++i) merged *= x.shape()[i];
  shape.push_back(merged);
  for (int i = last + 1; i < x.dim(); ++i) shape.push_back(x.shape()[i]);
  return reshape(x, shape);
}

Tensor permute(const Tensor& x, const std::vector<int64_t>& dims) {
  check<ShapeError>(static_cast<int>(dims.size()) == x.dim(), "permute", dims.size(), " dims for a tensor of shape ",
                    x.shape(), ". Hint: name each dim once.");
  Shape shape;
  Strides strides;
  std::vector<int64_t> inverse(dims.size(), -1);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int from = normalize_dim("permute", dims[i], x.dim());
    int64_t& place = inverse[static_cast<size_t>(from)];
    check<ShapeError>(place < 0, "permute", "dim ", dims[i], " is listed twice.");
    place = static_cast<int64_t>(i);
    shape.push_back(x.shape()[from]);
    strides.push_back(x.strides()[from]);
  }
  return record_view("permute", {&x}, {}, strided_view(x, shape, strides),
                     [inverse](Backward& bw) { bw.give(0, permute(bw.grad(), inverse)); });
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  const int a = normalize_dim("transpose", dim0, x.dim()), b = normalize_dim("transpose", dim1, x.dim());
  if (a == b) return x;
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return record_view("transpose", {&x}, {}, strided_view(x, shape, strides),
                     [a, b](Backward& bw) { bw.give(0, transpose(bw.grad(), a, b)); });
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  if (shape == x.shape()) return x;
  return record_view("broadcast_to", {&x}, {}, expand_view(x, shape), [](Backward& bw) { bw.give(0, bw.grad()); });
}

Tensor squeeze(const Tensor& x, int64_t dim) {
  const int d = normalize_dim("squeeze", dim, x.dim());
  if (d >= x.dim() || x.shape()[d] != 1) return x;
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.erase(d);
  strides.erase(d);
  return record_view("squeeze", {&x}, {}, strided_view(x, shape, strides),
                     [d](Backward& bw) { bw.give(0, unsqueeze(bw.grad(), d)); });
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  const int d = normalize_dim("unsqueeze", dim, x.dim() + 1);
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.insert(d, 1);
  strides.insert(d, 1);
  return record_view("unsqueeze", {&x}, {}, strided_view(x, shape, strides),
                     [d](Backward& bw) { bw.give(0, squeeze(bw.grad(), d)); });
}

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step) {
  const int d = normalize_dim("slice", dim, x.dim());
  check<ShapeError>(x.dim() > 0, "slice", "a scalar has no dim to slice. Hint: reshape it to (1,) first.");
  detail::Window window(x.shape());
  detail::narrow("slice", window, d, start, stop, step);
  return detail::take_window("slice", x, window);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  const int d = normalize_dim("select", dim, x.dim());
  check<ShapeError>(x.dim() > 0, "select", "a scalar has no dim to select from.");
  detail::Window window(x.shape());
  detail::pick("select", window, d, index);
  window.source.erase(d);
  return detail::take_window("select", x, window);
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }

Tensor clone(const Tensor& x) {
  return record("clone", {&x}, {}, copy_as(x, x.dtype()), [](Backward& bw) { bw.give(0, bw.grad()); });
}

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor out = copy_as(x, dtype);
  if (!is_floating_point(dtype)) return out;
  return record("cast", {&x}, {}, out, [](Backward& bw) { bw.give(0, bw.grad()); });  // give() casts back
}

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  return record("to", {&x}, {}, copy_to_device(x, device),
                [from = x.device()](Backward& bw) { bw.give(0, to(bw.grad(), from)); });
}

Tensor flip(const Tensor& x, const std::vector<int64_t>& dims) {
  std::vector<int> which;
  if (!dims.empty()) which = normalize_dims("flip", dims, x.dim());
  Tensor out = x.dim() == 0 || which.empty() ? copy_as(x, x.dtype()) : x;
  {
    const NoGradGuard no_grad;
    for (int d : which) {
      if (d < x.dim()) out = index_select(out, d, arange(x.shape()[d] - 1, -1, -1, int64, x.device()));
    }
  }
  return record("flip", {&x}, {}, out, [dims](Backward& bw) { bw.give(0, flip(bw.grad(), dims)); });
}

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) {
  check<ValueError>(!tensors.empty(), "cat", "the list of tensors is empty.");
  check<ShapeError>(tensors[0].dim() > 0, "cat", "scalars cannot be joined. Hint: use stack.");
  const int d = normalize_dim("cat", dim, tensors[0].dim());
  check_joinable("cat", tensors, d);
  Shape shape = tensors[0].shape();
  DType dtype = tensors[0].dtype();
  shape[d] = 0;
  for (const Tensor& t : tensors) {
    shape[d] += t.shape()[d];
    dtype = promote_types(dtype, t.dtype());
  }
  const Tensor out = empty(shape, dtype, tensors[0].device());
  std::vector<int64_t> ends;
  for (const Tensor& t : tensors) {
    const int64_t start = ends.empty() ? 0 : ends.back();
    ends.push_back(start + t.shape()[d]);
    if (t.numel() == 0) continue;
    copy_into(as_strided(out, t.shape(), out.strides(), out.storage_offset() + start * out.strides()[d]), t);
  }
  return record("cat", pointers(tensors), {}, out, [d, ends](Backward& bw) {
    for (size_t i = 0; i < ends.size(); ++i) {
      const int input = static_cast<int>(i);
      if (bw.needs(input)) bw.give(input, slice(bw.grad(), d, i == 0 ? 0 : ends[i - 1], ends[i]));
    }
  });
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim) {
  check<ValueError>(!tensors.empty(), "stack", "the list of tensors is empty.");
  const int d = normalize_dim("stack", dim, tensors[0].dim() + 1);
  check_joinable("stack", tensors, -1);
  std::vector<Tensor> raised;
  raised.reserve(tensors.size());
  for (const Tensor& t : tensors) raised.push_back(unsqueeze(t, d));
  return cat(raised, d);
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  check<ValueError>(size > 0, "split", "size is ", size, ". Hint: it must be positive.");
  check<ShapeError>(x.dim() > 0, "split", "a scalar cannot be split.");
  const int d = normalize_dim("split", dim, x.dim());
  const int64_t n = x.shape()[d];
  std::vector<Tensor> parts;
  for (int64_t at = 0; at < n || parts.empty(); at += size) {
    detail::Window window(x.shape());
    detail::narrow("split", window, d, at, std::min(at + size, n), 1);
    parts.push_back(detail::window_view(x, window));
  }
  if (!detail::wants_record("split", {&x})) return parts;
  // One node for all parts: their gradients are joined once, instead of each being spread over zeros of x's size.
  const auto backward = [d](Backward& bw) {
    std::vector<Tensor> grads;
    for (int i = 0; i < bw.output_count(); ++i) grads.push_back(bw.grad(i));
    bw.give(0, cat(grads, d));
  };
  detail::attach(make_ref<detail::LambdaNode<decltype(backward)>>("split", backward), {&x}, {}, pointers(parts), true);
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  check<ValueError>(chunks > 0, "chunk", chunks, " chunks. Hint: the number must be positive.");
  check<ShapeError>(x.dim() > 0, "chunk", "a scalar cannot be split.");
  const int64_t n = x.size(dim);
  return split(x, std::max<int64_t>(1, (n + chunks - 1) / chunks), dim);
}

}  // namespace anello
