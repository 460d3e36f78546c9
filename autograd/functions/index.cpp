// Indexing: basic indices, gather and its adjoint, one-hot rows.
// Main entry: index(), index_set(), gather(), scatter_add(), index_select() of autograd/functions.h.
#include <anello/autograd/functions.h>
#include <anello/autograd/functions/window.h>
#include <anello/autograd/node.h>
#include <anello/core/kernels/index.h>
#include <anello/core/registry.h>

#include <algorithm>

namespace anello {

Index Index::slice(int64_t start, int64_t stop, int64_t step) {
  Index i(Kind::slice);
  i.start = start, i.stop = stop, i.step = step;
  return i;
}
Index Index::all() {
  Index i(Kind::slice);
  i.has_start = i.has_stop = false;
  return i;
}
Index Index::new_dim() { return Index(Kind::new_dim); }
Index Index::ellipsis() { return Index(Kind::ellipsis); }

namespace {

detail::Window parse_indices(const char* name, const Tensor& x, const std::vector<Index>& indices) {
  int consumed = 0, ellipses = 0;
  for (const Index& i : indices) {
    consumed += i.kind == Index::Kind::integer || i.kind == Index::Kind::slice;
    ellipses += i.kind == Index::Kind::ellipsis;
  }
  check<IndexError>(ellipses <= 1, name, "more than one ellipsis.");
  check<IndexError>(consumed <= x.dim(), name, consumed, " indices for a tensor of shape ", x.shape(), ".");
  detail::Window window(x.shape());
  window.source = {};
  int dim = 0;
  const auto keep = [&](int count) {
    for (int i = 0; i < count; ++i) window.source.push_back(dim++);
  };
  for (const Index& i : indices) {
    switch (i.kind) {
      case Index::Kind::integer:
        detail::pick(name, window, dim++, i.start);
        break;
      case Index::Kind::slice:
        detail::narrow(name, window, dim, i.has_start ? i.start : 0, i.has_stop ? i.stop : x.shape()[dim], i.step);
        keep(1);
        break;
      case Index::Kind::new_dim:
        window.source.push_back(-1);
        break;
      case Index::Kind::ellipsis:
        keep(x.dim() - consumed);
        break;
    }
  }
  keep(x.dim() - dim);
  return window;
}

/// A shape seen as [outer, size, inner] around a dim.
struct Around {
  int64_t outer = 1, size = 1, inner = 1;
  Around(const Shape& shape, int dim) : size(shape[dim]) {
    for (int i = 0; i < dim; ++i) outer *= shape[i];
    for (int i = dim + 1; i < shape.size(); ++i) inner *= shape[i];
  }
};

Tensor int64_index(const char* name, const Tensor& x, const Tensor& index) {
  check<DTypeError>(is_integral(index.dtype()), name, "the index is ", index.dtype(), ". Hint: use an integer dtype.");
  check<DeviceError>(index.device() == x.device(), name, "the index is on ", index.device(), ", the tensor on ",
                     x.device(), ". Hint: use to().");
  return contiguous_data(index.dtype() == int64 ? index : copy_as(index, int64));
}

/// The full index of gather, or the 1-d one of index_select; contiguous int64.
IndexOperand index_operand(const Tensor& index, const Around& around, bool rows) {
  const int64_t* data = index.data<int64_t>();
  if (rows) return {data, 0, 1, 0, true};
  return {data, around.size * around.inner, around.inner, 1, false};
}

Tensor scatter_to(const Tensor& src, int dim, const Tensor& index, const Shape& shape, bool rows);

/// x at `index` along dim; x has the index's shape outside dim. `rows`: the index is 1-d, for whole rows.
Tensor gather_from(const Tensor& x, int dim, const Tensor& index, bool rows) {
  Shape shape = x.shape();
  shape[dim] = rows ? index.numel() : index.shape()[dim];
  Tensor out = empty(shape, x.dtype(), x.device());
  if (out.numel() > 0) {
    const Around a(shape, dim);
    const Tensor source = contiguous_data(x);
    const GatherParams params{out.raw_data(), source.raw_data(), index_operand(index, a, rows), a.outer, a.size,
                              a.inner,        x.shape()[dim]};
    if (rows)
      launch<kIndexSelect>(x.device(), x.dtype(), params);
    else
      launch<kGather>(x.device(), x.dtype(), params);
  }
  return record(rows ? "index_select" : "gather", {&x}, {&index}, out, [dim, rows](Backward& bw) {
    bw.give(0, scatter_to(bw.grad(), dim, bw.saved(0), bw.input_shape(0), rows));
  });
}

/// Zeros of `shape` plus src at `index` along dim: the adjoint of gather_from.
Tensor scatter_to(const Tensor& src, int dim, const Tensor& index, const Shape& shape, bool rows) {
  Tensor out = empty(shape, src.dtype(), src.device());
  if (src.numel() == 0) {
    fill(out, 0);
  } else {
    const Around a(src.shape(), dim);
    const Tensor source = contiguous_data(src);
    const ScatterAddParams params{out.raw_data(), source.raw_data(), index_operand(index, a, rows), a.outer, a.size,
                                  a.inner,        shape[dim]};
    launch<kScatterAdd>(src.device(), src.dtype(), params);
  }
  return record("scatter_add", {&src}, {&index}, out,
                [dim, rows](Backward& bw) { bw.give(0, gather_from(bw.grad(), dim, bw.saved(0), rows)); });
}

}  // namespace

Tensor index(const Tensor& x, const std::vector<Index>& indices) {
  return detail::take_window("index", x, parse_indices("index", x, indices));
}

void index_set(const Tensor& x, const std::vector<Index>& indices, const Tensor& value) {
  require_writable("index_set", x);
  const detail::Window window = parse_indices("index_set", x, indices);
  const Shape place = detail::window_view(x, window).shape();
  check<ShapeError>(value.shape() == place || broadcast_shapes("index_set", place, value.shape()) == place, "index_set",
                    "a value of shape ", value.shape(), " does not fit the place of shape ", place, ".");
  if (!is_grad_enabled() || !(x.requires_grad() || value.requires_grad())) {
    // A value that shares x's memory is read before any of it is written.
    const bool shared = value.storage() == x.storage();
    copy_into(detail::window_view(x, window), shared ? copy_as(value, value.dtype()) : value);
    return;
  }
  apply_in_place("index_set", x, false,
                 [&](const Tensor& old) { return detail::put_window("index_set", old, window, value); }, {&value});
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  const int d = normalize_dim("gather", dim, x.dim());
  check<ShapeError>(x.dim() > 0 && index.dim() == x.dim(), "gather", "the index of shape ", index.shape(),
                    " must have as many dims as the tensor of shape ", x.shape(), ", at least one.");
  const Tensor places = int64_index("gather", x, index);
  detail::Window window(x.shape());
  bool smaller = false;
  for (int i = 0; i < x.dim(); ++i) {
    if (i == d || places.shape()[i] == x.shape()[i]) continue;
    check<ShapeError>(places.shape()[i] < x.shape()[i], "gather", "the index of shape ", index.shape(),
                      " is larger than ", x.shape(), " in dim ", i, ".");
    detail::narrow("gather", window, i, 0, places.shape()[i], 1);
    smaller = true;
  }
  return gather_from(smaller ? detail::take_window("gather", x, window) : x, d, places, false);
}

Tensor scatter_add(const Tensor& src, int64_t dim, const Tensor& index, int64_t size) {
  const int d = normalize_dim("scatter_add", dim, src.dim());
  check<ShapeError>(src.dim() > 0 && index.shape() == src.shape(), "scatter_add", "the index of shape ", index.shape(),
                    " must have the shape of the source, ", src.shape(), ", with at least one dim.");
  check<ShapeError>(size >= 0, "scatter_add", "size is ", size, ".");
  Shape shape = src.shape();
  shape[d] = size;
  return scatter_to(src, d, int64_index("scatter_add", src, index), shape, false);
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  const int d = normalize_dim("index_select", dim, x.dim());
  check<ShapeError>(x.dim() > 0, "index_select", "a scalar has no dim to select from.");
  check<ShapeError>(index.dim() == 1, "index_select", "the index has shape ", index.shape(),
                    ", not one dim. Hint: flatten it.");
  return gather_from(x, d, int64_index("index_select", x, index), true);
}

Tensor one_hot(const Tensor& labels, int64_t classes, DType dtype) {
  check<ShapeError>(classes >= 0, "one_hot", classes, " classes.");
  const Tensor places = int64_index("one_hot", labels, labels);
  Shape shape = labels.shape();
  shape.push_back(classes);
  Tensor out = empty(shape, dtype, labels.device());
  if (labels.numel() == 0) return out;
  launch<kOneHot>(labels.device(), dtype, {out.raw_data(), places.data<int64_t>(), labels.numel(), classes});
  return out;
}

}  // namespace anello
