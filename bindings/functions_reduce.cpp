// Reductions, as functions of the module and methods of Tensor.
// Main entry: bind_reductions().
#include "bindings.h"

#include <anello/autograd/functions.h>

namespace anello::python {
namespace {

using Reduce = Tensor (*)(const Tensor&, const std::vector<int64_t>&, bool);

const struct {
  const char* name;
  Reduce function;
  const char* doc;
} kReductions[] = {
    {"sum", &sum,
     R"(The sum over `dim` (an int, a tuple, or None for all). Integers and bools are summed as int64, 16-bit floats
in float32. The order of addition depends on the shape alone.

>>> import anello
>>> anello.tensor([[1, 2], [3, 4]]).sum(dim=0).tolist()
[4, 6]
)"},
    {"mean", &mean, R"(The mean over `dim` (an int, a tuple, or None for all): float32 for integers, NaN over nothing.

>>> import anello
>>> anello.tensor([[1, 2], [3, 4]]).mean(dim=1).tolist()
[1.5, 3.5]
)"},
    {"prod", &prod, R"(The product over `dim` (an int, a tuple, or None for all).

>>> import anello
>>> anello.tensor([2, 3, 4]).prod().item()
24
)"},
    {"amax", &max,
     R"(The largest value over `dim` (an int, a tuple, or None for all). NaN wins; at ties the gradient is shared
evenly. Raises ShapeError over nothing.

>>> import anello
>>> anello.tensor([[1, 5], [7, 2]]).amax(dim=1).tolist()
[5, 7]
)"},
    {"amin", &min,
     R"(The smallest value over `dim` (an int, a tuple, or None for all). NaN wins; at ties the gradient is shared
evenly. Raises ShapeError over nothing.

>>> import anello
>>> anello.tensor([[1, 5], [7, 2]]).amin(dim=1).tolist()
[1, 2]
)"},
    {"any", &any, R"(True where one element over `dim` is not 0 (bool).

>>> import anello
>>> anello.tensor([False, True]).any().item()
True
)"},
    {"all", &all, R"(True where no element over `dim` is 0 (bool).

>>> import anello
>>> anello.tensor([False, True]).all().item()
False
)"},
    {"logsumexp", &logsumexp,
     R"(log(sum(exp(x))) over `dim` without overflow; of -inf alone it is -inf, with gradient 0.

>>> import anello
>>> anello.tensor([1000.0]).logsumexp(dim=0).item()
1000.0
)"},
};

using Arg = Tensor (*)(const Tensor&, int64_t, bool);

/// argmax over one dim, or over all elements in row-major order.
Tensor arg_reduce(Arg function, const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  if (dim) return function(x, *dim, keepdim);
  const Tensor place = function(flatten(x), 0, false);
  return keepdim ? reshape(place, Shape::filled(x.dim(), 1)) : place;
}

/// (values, indices) of the largest or smallest along one dim, as a named tuple.
class Extremes {
 public:
  Extremes(const char* name, Reduce values, Arg indices) : values_(values), indices_(indices) {
    type_ =
        SharedObject(py::module_::import("collections")
                         .attr("namedtuple")(name, py::make_tuple("values", "indices"), py::arg("module") = "anello"));
  }
  py::object operator()(const Tensor& x, int64_t dim, bool keepdim) const {
    Tensor values, indices;
    {
      const GilRelease release;
      indices = indices_(x, dim, keepdim);
      // Read where the index points, so that the gradient of a tie goes to that one element.
      const Tensor place = keepdim || x.dim() == 0 ? indices : unsqueeze(indices, normalize_dim("max", dim, x.dim()));
      values = x.dim() == 0 ? values_(x, {}, false) : gather(x, dim, place);
      if (!keepdim && x.dim() > 0) values = squeeze(values, dim);
    }
    return type_.get()(values, indices);
  }

 private:
  Reduce values_;
  Arg indices_;
  SharedObject type_;
};

/// `max(x)`, `max(x, dim, keepdim) -> (values, indices)` and `max(x, other)`, as PyTorch has them.
void bind_extreme(py::module_& m, const char* name, Reduce reduce, Arg arg,
                  Tensor (*elementwise)(const Tensor&, const Tensor&), const char* doc) {
  Definer define(m);
  define.both(name, [reduce](const Tensor& x) { return reduce(x, {}, false); });
  define.both(
      name, [elementwise](const Tensor& x, const Tensor& y) { return elementwise(x, y); }, py::arg("other"));
  m.attr(name) = py::cpp_function(Extremes(name, reduce, arg), py::name(name), py::scope(m), py::sibling(m.attr(name)),
                                  py::arg("input"), py::arg("dim"), py::arg("keepdim") = false, doc);
  define.method_alias(name, name);
}

}  // namespace

void bind_reductions(py::module_& m) {
  Definer define(m);
  for (const auto& row : kReductions)
    define.both(
        row.name,
        [f = row.function](const Tensor& x, const Dims& dim, bool keepdim) { return f(x, dim.values, keepdim); },
        py::arg("dim") = py::none(), py::arg("keepdim") = false, row.doc);
  bind_extreme(
      m, "max", &max, &argmax, &maximum,
      R"(max(input) is the largest element; max(input, dim) is a named tuple (values, indices) of the largest along
one dim; max(input, other) is maximum(). NaN wins. amax() gives the values alone, over any dims. Raises ShapeError
over nothing.

>>> import anello
>>> x = anello.tensor([[1, 5], [7, 2]])
>>> x.max().item()
7
>>> x.max(dim=1).indices.tolist()
[1, 0]
)");
  bind_extreme(
      m, "min", &min, &argmin, &minimum,
      R"(min(input) is the smallest element; min(input, dim) is a named tuple (values, indices) of the smallest along
one dim; min(input, other) is minimum(). NaN wins. amin() gives the values alone, over any dims. Raises ShapeError
over nothing.

>>> import anello
>>> anello.tensor([[1, 5], [7, 2]]).min(dim=0).values.tolist()
[1, 2]
)");
  define.both(
      "argmax",
      [](const Tensor& x, std::optional<int64_t> dim, bool keepdim) { return arg_reduce(&argmax, x, dim, keepdim); },
      py::arg("dim") = py::none(), py::arg("keepdim") = false,
      R"(Where the largest element is along `dim` (int64), the first of equals; NaN counts as largest. Without dim: in
the flattened tensor.

>>> import anello
>>> anello.tensor([[1, 5], [7, 2]]).argmax(dim=1).tolist()
[1, 0]
)");
  define.both(
      "argmin",
      [](const Tensor& x, std::optional<int64_t> dim, bool keepdim) { return arg_reduce(&argmin, x, dim, keepdim); },
      py::arg("dim") = py::none(), py::arg("keepdim") = false,
      R"(Where the smallest element is along `dim` (int64), the first of equals. Without dim: in the flattened tensor.

>>> import anello
>>> anello.tensor([[1, 5], [7, 2]]).argmin().item()
0
)");
  define.both(
      "var",
      [](const Tensor& x, const Dims& dim, double correction, bool keepdim) {
        return var(x, dim.values, correction, keepdim);
      },
      py::arg("dim") = py::none(), py::kw_only(), py::arg("correction") = 1.0, py::arg("keepdim") = false,
      R"(The variance over `dim`: the squared distances from the mean, summed and divided by n - correction.

>>> import anello
>>> anello.tensor([1.0, 3.0]).var().item()
2.0
)");
  define.both(
      "std",
      [](const Tensor& x, const Dims& dim, double correction, bool keepdim) {
        return stddev(x, dim.values, correction, keepdim);
      },
      py::arg("dim") = py::none(), py::kw_only(), py::arg("correction") = 1.0, py::arg("keepdim") = false,
      R"(The standard deviation over `dim`: the square root of var(). Where all elements are equal its gradient is 0.

>>> import anello
>>> anello.tensor([1.0, 3.0]).std(correction=0).item()
1.0
)");
  define.both(
      "norm",
      [](const Tensor& x, double p, const Dims& dim, bool keepdim) {
        check<ValueError>(p == 2, "norm", "only p = 2 is there, got ", p, ". Hint: x.abs().sum(dim) is the 1-norm.");
        return norm(x, dim.values, keepdim);
      },
      py::arg("p") = 2.0, py::arg("dim") = py::none(), py::arg("keepdim") = false,
      R"(The Euclidean norm over `dim` (an int, a tuple, or None for all); the gradient at 0 is 0.

>>> import anello
>>> anello.tensor([3.0, 4.0]).norm().item()
5.0
)");
}

}  // namespace anello::python
