// Functions that change a tensor's shape or pick from it, as functions of the module and methods of Tensor.
// Main entry: bind_shape().
#include "bindings.h"

#include <anello/autograd/functions.h>

namespace anello::python {
namespace {

/// reshape() that refuses to copy.
Tensor view(const Tensor& x, const Shape& shape) {
  const Tensor result = reshape(x, shape);
  check(result.storage() == x.storage(), "view", "shape ", x.shape(), " with strides ", x.strides(),
        " cannot be seen as ", shape, " without a copy. Hint: reshape() copies where it must.");
  return result;
}

/// -1 keeps a size.
Tensor expand(const Tensor& x, Shape shape) {
  const int shift = shape.size() - x.dim();
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) continue;
    check<ShapeError>(i >= shift && shift >= 0, "expand", "-1 at dim ", i, " has no size to keep in shape ", x.shape());
    shape[i] = x.shape()[i - shift];
  }
  return broadcast_to(x, shape);
}

Tensor squeeze_dims(const Tensor& x, std::optional<int64_t> dim) {
  if (dim) return squeeze(x, *dim);
  Shape shape;
  for (int64_t size : x.shape())
    if (size != 1) shape.push_back(size);
  return reshape(x, shape);
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  const int64_t size = x.shape()[normalize_dim("narrow", dim, x.dim())];
  const int64_t first = start < 0 ? start + size : start;
  check<IndexError>(first >= 0 && length >= 0 && first <= size && length <= size - first, "narrow", length,
                    " elements from ", start, " on are not inside a dim of size ", size);
  return slice(x, dim, first, first + length);
}

std::vector<Tensor> split_by(const Tensor& x, const Dims& sizes, int64_t dim, bool sections) {
  if (!sections) return split(x, sizes.values[0], dim);
  std::vector<Tensor> parts;
  int64_t start = 0;
  for (int64_t size : sizes.values) {
    parts.push_back(narrow(x, dim, start, size));
    start += size;
  }
  const int64_t whole = x.shape()[normalize_dim("split", dim, x.dim())];
  check<ShapeError>(start == whole, "split", "sections add up to ", start, " of a dim of size ", whole);
  return parts;
}

py::tuple as_tuple(const std::vector<Tensor>& parts) { return py::cast(parts).cast<py::tuple>(); }

/// A method of the module and of Tensor that takes sizes as `f(x, 2, 3)` or `f(x, (2, 3))`.
template <class F>
void bind_sizes(Definer& define, py::module_& m, const char* name, const char* doc, F f) {
  m.def(
      name,
      [name, f](const Tensor& x, const py::args& sizes) {
        const Shape shape = shape_from_args(name, sizes);
        const GilRelease release(x.numel() >= kGilElements);
        return f(x, shape);
      },
      py::arg("input"), doc);
  define.method_alias(name, name);
}

void bind_views(Definer& define, py::module_& m) {
  bind_sizes(define, m, "reshape",
             R"(The same elements in another shape; one size may be -1. A view where the strides allow it, else a copy.

>>> import anello
>>> anello.arange(6).reshape(2, -1).tolist()
[[0, 1, 2], [3, 4, 5]]
)",
             [](const Tensor& x, const Shape& shape) { return reshape(x, shape); });
  bind_sizes(define, m, "view", R"(reshape() that never copies: raises Error where a view is not possible.

>>> import anello
>>> anello.arange(6).view(3, 2).shape
(3, 2)
)",
             view);
  bind_sizes(define, m, "permute", R"(The dims in another order: permute(2, 0, 1) or permute((2, 0, 1)). A view.

>>> import anello
>>> anello.zeros(2, 3, 4).permute(2, 0, 1).shape
(4, 2, 3)
)",
             [](const Tensor& x, const Shape& dims) { return permute(x, dims.vector()); });
  bind_sizes(define, m, "broadcast_to", R"(The tensor repeated, without a copy, to a shape that it broadcasts to.

>>> import anello
>>> anello.tensor([1, 2]).broadcast_to(2, 2).tolist()
[[1, 2], [1, 2]]
)",
             [](const Tensor& x, const Shape& shape) { return broadcast_to(x, shape); });
  bind_sizes(define, m, "expand", R"(broadcast_to() in which -1 keeps a size.

>>> import anello
>>> anello.zeros(3, 1).expand(-1, 4).shape
(3, 4)
)",
             expand);
  bind_sizes(define, m, "flip", R"(The elements in reverse order along the given dims: flip(0) or flip((0, 1)). A copy.

>>> import anello
>>> anello.tensor([1, 2, 3]).flip(0).tolist()
[3, 2, 1]
)",
             [](const Tensor& x, const Shape& dims) { return flip(x, dims.vector()); });
  define.both("flatten", &flatten, py::arg("start_dim") = 0, py::arg("end_dim") = -1,
              R"(The dims from start_dim to end_dim (both included) as one.

>>> import anello
>>> anello.zeros(2, 3, 4).flatten(1).shape
(2, 12)
)");
  define.both("transpose", &transpose, py::arg("dim0"), py::arg("dim1"), R"(Two dims swapped (a view).

>>> import anello
>>> anello.zeros(2, 3).transpose(0, 1).shape
(3, 2)
)");
  define.both(
      "t",
      [](const Tensor& x) {
        check<ShapeError>(x.dim() <= 2, "t", "takes at most 2 dims, got shape ", x.shape(),
                          ". Hint: transpose() or permute().");
        return x.dim() < 2 ? x : transpose(x, 0, 1);
      },
      R"(The transpose of a matrix (a view).

>>> import anello
>>> anello.zeros(2, 3).t().shape
(3, 2)
)");
  define.both("squeeze", squeeze_dims, py::arg("dim") = py::none(),
              R"(Without one dim where that is of size 1, or without all that are.

>>> import anello
>>> anello.zeros(2, 1, 3).squeeze(1).shape
(2, 3)
)");
  define.both("unsqueeze", &unsqueeze, py::arg("dim"), R"(With a new dim of size 1 at `dim`.

>>> import anello
>>> anello.zeros(2, 3).unsqueeze(0).shape
(1, 2, 3)
)");
}

void bind_picks(Definer& define) {
  define.both("select", &select, py::arg("dim"), py::arg("index"),
              R"(One entry along dim, which goes (a view). Raises IndexError outside.

>>> import anello
>>> anello.tensor([[1, 2], [3, 4]]).select(0, 1).tolist()
[3, 4]
)");
  define.both("slice", &slice, py::arg("dim"), py::arg("start"), py::arg("stop"), py::arg("step") = 1,
              R"(Entries start, start + step, ... below stop along dim (a view), clipped as in Python.

>>> import anello
>>> anello.arange(6).slice(0, 1, 6, 2).tolist()
[1, 3, 5]
)");
  define.both("narrow", narrow, py::arg("dim"), py::arg("start"), py::arg("length"),
              R"(`length` entries from `start` along dim (a view).

>>> import anello
>>> anello.arange(6).narrow(0, 2, 3).tolist()
[2, 3, 4]
)");
  define.both("index_select", &index_select, py::arg("dim"), py::arg("index"),
              R"(Entries along dim by a 1-d integer tensor; negative ones count from the end. Raises IndexError outside.

>>> import anello
>>> anello.tensor([10, 20, 30]).index_select(0, anello.tensor([2, 0])).tolist()
[30, 10]
)");
  define.both(
      "gather", &gather, py::arg("dim"), py::arg("index"),
      R"(out[i][j] = input[index[i][j]][j] for dim 0, input[i][index[i][j]] for dim 1. Raises IndexError outside.

>>> import anello
>>> anello.tensor([[1, 2], [3, 4]]).gather(1, anello.tensor([[1], [0]])).tolist()
[[2], [3]]
)");
  define.both(
      "scatter_add", &scatter_add, py::arg("dim"), py::arg("index"), py::arg("size"),
      R"(Zeros of `size` along dim, with every element of input added where index says: the adjoint of gather(). The
order is fixed.

>>> import anello
>>> anello.tensor([1, 2, 3]).scatter_add(0, anello.tensor([0, 2, 0]), 3).tolist()
[4, 0, 2]
)");
  define.both("one_hot", &one_hot, py::arg("num_classes"), py::arg("dtype") = float32,
              R"(Labels as rows that are 1 at the label: [..., num_classes]. Raises IndexError for a label outside.

>>> import anello
>>> anello.one_hot(anello.tensor([1, 0]), 2).tolist()
[[0.0, 1.0], [1.0, 0.0]]
)");
  define.both("pad", &pad, py::arg("pad"), py::arg("mode") = "constant", py::arg("value") = 0.0,
              R"(`pad` lists (before, after) for the last dim, then for the one before it, and so on. mode 'constant'
(negative amounts crop), 'reflect', 'replicate' or 'circular'.

>>> import anello
>>> anello.tensor([1, 2, 3]).pad((1, 1), mode='reflect').tolist()
[2, 1, 2, 3, 2]
)");
}

void bind_joins(Definer& define, py::module_& m) {
  define.function("cat", &cat, py::arg("tensors"), py::arg("dim") = 0,
                  R"(Tensors one after the other along an existing dim.

>>> import anello
>>> anello.cat([anello.tensor([1, 2]), anello.tensor([3])]).tolist()
[1, 2, 3]
)");
  define.function("stack", &stack, py::arg("tensors"), py::arg("dim") = 0, R"(Tensors of one shape along a new dim.

>>> import anello
>>> anello.stack([anello.tensor([1, 2]), anello.tensor([3, 4])]).tolist()
[[1, 2], [3, 4]]
)");
  m.def(
      "split",
      [](const Tensor& x, const py::object& size, int64_t dim) {
        const bool sections = !PyIndex_Check(size.ptr());
        return as_tuple(split_by(x, size.cast<Dims>(), dim, sections));
      },
      py::arg("tensor"), py::arg("split_size_or_sections"), py::arg("dim") = 0,
      R"(A tuple of views along dim, each of the given size (the last may be smaller), or of the sizes in a list.

>>> import anello
>>> [part.tolist() for part in anello.arange(5).split(2)]
[[0, 1], [2, 3], [4]]
)");
  define.method_alias("split", "split");
  m.def(
      "chunk", [](const Tensor& x, int64_t chunks, int64_t dim) { return as_tuple(chunk(x, chunks, dim)); },
      py::arg("input"), py::arg("chunks"), py::arg("dim") = 0,
      R"(A tuple of at most `chunks` views of equal size along dim (the last may be smaller).

>>> import anello
>>> [part.tolist() for part in anello.arange(5).chunk(2)]
[[0, 1, 2], [3, 4]]
)");
  define.method_alias("chunk", "chunk");
  m.def(
      "unbind",
      [](const Tensor& x, int64_t dim) {
        check<ShapeError>(x.dim() > 0, "unbind", "a scalar has no dim to take apart.");
        std::vector<Tensor> parts;
        const int64_t size = x.shape()[normalize_dim("unbind", dim, x.dim())];
        for (int64_t i = 0; i < size; ++i) parts.push_back(select(x, dim, i));
        return as_tuple(parts);
      },
      py::arg("input"), py::arg("dim") = 0, R"(A tuple of the entries along dim (views).

>>> import anello
>>> [part.tolist() for part in anello.tensor([[1, 2], [3, 4]]).unbind(1)]
[[1, 3], [2, 4]]
)");
  define.method_alias("unbind", "unbind");
}

}  // namespace

void bind_shape(py::module_& m) {
  Definer define(m);
  bind_views(define, m);
  bind_picks(define);
  bind_joins(define, m);
  define.both("contiguous", &contiguous,
              R"(The tensor itself when its elements lie in row-major order, else a copy in which they do.

>>> import anello
>>> anello.zeros(2, 3).T.contiguous().is_contiguous()
True
)");
  define.both("clone", &clone, R"(A copy with memory of its own; gradients flow through.

>>> import anello
>>> x = anello.tensor([1, 2])
>>> x.clone() is x
False
)");
}

}  // namespace anello::python
