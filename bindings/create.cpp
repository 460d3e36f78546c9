// Making tensors from Python values, and the creation functions.
// Main entry: bind_create(), tensor_from_data().
#include "bindings.h"
#include "tensor_type.h"

#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>
#include <anello/core/random.h>

namespace anello::python {
namespace {

/// Raises ValueError unless an integer of Python is a value of an integer dtype: no number changes in silence.
void check_fits(int64_t value, DType kind, DType dtype) {
  if (kind != int64 || !is_integral(dtype) || dtype == int64) return;
  const int bits = 8 * static_cast<int>(item_size(dtype)) - (dtype == uint8 ? 0 : 1);
  const int64_t low = dtype == uint8 ? 0 : -(int64_t{1} << bits), high = (int64_t{1} << bits) - 1;
  check<ValueError>(value >= low && value <= high, "tensor", value, " does not fit in ", dtype, ", which has ", low,
                    " to ", high, ". Hint: use a larger dtype.");
}

/// Collects the numbers of nested sequences and the shape they span.
class Nested {
 public:
  explicit Nested(py::handle data) { walk(data, 0); }

  Tensor tensor(std::optional<DType> wanted) const {
    const bool floats = kind_ == float64;
    const DType own = floats ? float32 : kind_;
    const DType dtype = wanted.value_or(numbers_ == 0 ? float32 : own);
    if (!floats && numbers_ != 0) {
      for (int64_t value : integers_) check_fits(value, kind_, dtype);
      return copy_as(from_vector(integers_, shape_), dtype);
    }
    return copy_as(from_vector(doubles_, shape_), dtype);
  }

 private:
  void walk(py::handle data, int depth) {
    if (is_number(data.ptr())) {
      check<ShapeError>(depth == shape_.size(), "tensor", "a number stands where others are sequences, at dim ", depth);
      return add(to_scalar(data.ptr()));
    }
    check<DTypeError>(PySequence_Check(data.ptr()) && !PyUnicode_Check(data.ptr()) && !PyBytes_Check(data.ptr()),
                      "tensor", "data is made of numbers and sequences of them, got ", Py_TYPE(data.ptr())->tp_name,
                      ".");
    // References of our own: what an element's __float__ does to the list is no concern of ours.
    const py::object items = py::reinterpret_steal<py::object>(PySequence_Tuple(data.ptr()));
    if (!items) throw py::error_already_set();
    const auto size = static_cast<int64_t>(PyTuple_GET_SIZE(items.ptr()));
    if (depth == shape_.size()) {
      check<ShapeError>(numbers_ == 0, "tensor", "a sequence stands where others are numbers, at dim ", depth);
      shape_.push_back(size);
    }
    check<ShapeError>(size == shape_[depth], "tensor", "rows of different lengths at dim ", depth, ": ", shape_[depth],
                      " and ", size);
    for (int64_t i = 0; i < size; ++i) walk(PyTuple_GET_ITEM(items.ptr(), i), depth + 1);
  }

  void add(Scalar value) {
    ++numbers_;
    kind_ = std::max(kind_, value.kind());
    doubles_.push_back(value.to_double());
    integers_.push_back(value.to_int64());
  }

  Shape shape_;
  std::vector<double> doubles_;
  std::vector<int64_t> integers_;
  int64_t numbers_ = 0;
  DType kind_ = bool_;  // ordered: bool_ < int64 < float64
};

bool is_array(py::handle data) { return PyObject_CheckBuffer(data.ptr()) != 0 && !PyBytes_Check(data.ptr()); }

/// The first element that is not a list or tuple decides whether rows are tensors or arrays, to be stacked. A list may
/// hold itself: nobody looks deeper than a tensor can be.
bool holds_tensors(py::handle data) {
  for (int depth = 0; PyList_Check(data.ptr()) || PyTuple_Check(data.ptr()); ++depth) {
    if (depth > kMaxDims || PySequence_Size(data.ptr()) == 0) return false;
    data = PyList_Check(data.ptr()) ? PyList_GET_ITEM(data.ptr(), 0) : PyTuple_GET_ITEM(data.ptr(), 0);
  }
  return is_tensor(data.ptr()) || (is_array(data) && !is_number(data.ptr()));
}

Tensor converted(const Tensor& source, std::optional<DType> dtype) {
  return copy_as(source, dtype.value_or(source.dtype()));
}

/// As tensor_from_data(), without a copy where memory can be shared.
Tensor share_data(py::handle data, std::optional<DType> dtype) {
  Tensor shared;
  if (is_tensor(data.ptr()))
    shared = tensor_of(data.ptr());
  else if (is_array(data) && !is_number(data.ptr()))
    shared = tensor_from_buffer("as_tensor", data);
  else
    return tensor_from_data(data.ptr(), dtype);
  return dtype ? cast(shared, *dtype) : shared;
}

/// Moves to the device and sets requires_grad, as the last step of every creation function.
Tensor finished(Tensor tensor, std::optional<Device> device, bool requires_grad) {
  if (device && tensor.device() != *device) {
    require_available("tensor", *device);
    tensor = copy_to_device(tensor, *device);
  }
  if (requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

using MaybeDType = std::optional<DType>;
using MaybeDevice = std::optional<Device>;

/// `f(*size, dtype=None, device=None, requires_grad=False)`.
template <class F>
void bind_sized(py::module_& m, const char* name, const char* doc, F f) {
  m.def(
      name,
      [name, f](const py::args& size, MaybeDType dtype, MaybeDevice device, bool requires_grad) {
        const Shape shape = shape_from_args(name, size);
        const GilRelease release(numel(shape) >= kGilElements);
        return finished(f(shape, dtype.value_or(float32), device.value_or(cpu)), {}, requires_grad);
      },
      py::arg("dtype") = py::none(), py::arg("device") = py::none(), py::arg("requires_grad") = false, doc);
}

/// `f(input, dtype=None, device=None, requires_grad=False)`: the shape of another tensor.
template <class F>
void bind_like(py::module_& m, const char* name, const char* doc, F f) {
  m.def(
      name,
      [f](const Tensor& input, MaybeDType dtype, MaybeDevice device, bool requires_grad) {
        const Shape shape = input.shape();
        const GilRelease release(numel(shape) >= kGilElements);
        return finished(f(shape, dtype.value_or(input.dtype()), device.value_or(input.device())), {}, requires_grad);
      },
      py::arg("input"), py::arg("dtype") = py::none(), py::arg("device") = py::none(), py::arg("requires_grad") = false,
      doc);
}

void bind_from_data(py::module_& m) {
  m.def(
      "tensor",
      [](const py::object& data, MaybeDType dtype, MaybeDevice device, bool requires_grad) {
        return finished(tensor_from_data(data.ptr(), dtype), device, requires_grad);
      },
      py::arg("data"), py::arg("dtype") = py::none(), py::arg("device") = py::none(), py::arg("requires_grad") = false,
      R"(A new tensor with a copy of `data`: a number, nested sequences, an array (buffer protocol), or a tensor.
Without `dtype`, Python floats become float32, integers int64, bools bool; arrays and tensors keep their dtype. Raises
ShapeError for ragged rows and DTypeError for anything that is not a number.

>>> import anello
>>> anello.tensor([[1, 2], [3, 4]]).shape
(2, 2)
>>> anello.tensor([1.5, 2.5], dtype=anello.float64).dtype
anello.float64
)");
  m.def(
      "as_tensor",
      [](const py::object& data, MaybeDType dtype, MaybeDevice device) {
        return finished(share_data(data, dtype), device, false);
      },
      py::arg("data"), py::arg("dtype") = py::none(), py::arg("device") = py::none(),
      R"(Like tensor(), without a copy where that is possible: a tensor of the right dtype is returned itself, an
array is shared.

>>> import anello
>>> x = anello.zeros(2)
>>> anello.as_tensor(x) is x
True
)");
}

void bind_ranges(py::module_& m) {
  const auto arange_with = [](Scalar start, Scalar end, Scalar step, MaybeDType dtype, MaybeDevice device,
                              bool requires_grad) {
    const bool floats = start.kind() == float64 || end.kind() == float64 || step.kind() == float64;
    return finished(arange(start, end, step, dtype.value_or(floats ? float32 : int64), device.value_or(cpu)), {},
                    requires_grad);
  };
  m.def(
      "arange",
      [arange_with](Scalar end, MaybeDType dtype, MaybeDevice device, bool requires_grad) {
        return arange_with(0, end, 1, dtype, device, requires_grad);
      },
      py::arg("end"), py::kw_only(), py::arg("dtype") = py::none(), py::arg("device") = py::none(),
      py::arg("requires_grad") = false);
  m.def("arange", arange_with, py::arg("start"), py::arg("end"), py::arg("step") = 1, py::kw_only(),
        py::arg("dtype") = py::none(), py::arg("device") = py::none(), py::arg("requires_grad") = false,
        R"(start, start + step, ... below end: int64 when all three are integers, else float32. Raises ValueError for a
step of 0.

>>> import anello
>>> anello.arange(2, 10, 3).tolist()
[2, 5, 8]
)");
  m.def(
      "linspace",
      [](double start, double end, int64_t steps, MaybeDType dtype, MaybeDevice device, bool requires_grad) {
        return finished(linspace(start, end, steps, dtype.value_or(float32), device.value_or(cpu)), {}, requires_grad);
      },
      py::arg("start"), py::arg("end"), py::arg("steps"), py::kw_only(), py::arg("dtype") = py::none(),
      py::arg("device") = py::none(), py::arg("requires_grad") = false,
      R"(`steps` values from start to end, both included.

>>> import anello
>>> anello.linspace(0, 1, 5).tolist()
[0.0, 0.25, 0.5, 0.75, 1.0]
)");
  m.def(
      "eye",
      [](int64_t n, std::optional<int64_t> columns, MaybeDType dtype, MaybeDevice device, bool requires_grad) {
        return finished(eye(n, columns.value_or(-1), dtype.value_or(float32), device.value_or(cpu)), {}, requires_grad);
      },
      py::arg("n"), py::arg("m") = py::none(), py::kw_only(), py::arg("dtype") = py::none(),
      py::arg("device") = py::none(), py::arg("requires_grad") = false,
      R"(The identity matrix of n rows and m columns (default n).

>>> import anello
>>> anello.eye(2).tolist()
[[1.0, 0.0], [0.0, 1.0]]
)");
}

void bind_filled(py::module_& m) {
  bind_sized(m, "zeros", R"(Zeros: zeros(2, 3) or zeros((2, 3)); float32 unless `dtype` says otherwise.

>>> import anello
>>> anello.zeros(2, 2).tolist()
[[0.0, 0.0], [0.0, 0.0]]
)",
             [](const Shape& s, DType t, Device d) { return zeros(s, t, d); });
  bind_sized(m, "ones", R"(Ones: ones(2, 3) or ones((2, 3)).

>>> import anello
>>> anello.ones(2, dtype=anello.int64).tolist()
[1, 1]
)",
             [](const Shape& s, DType t, Device d) { return ones(s, t, d); });
  bind_sized(m, "empty", R"(Memory that nothing has been written to: its values are whatever was there.

>>> import anello
>>> anello.empty(2, 3).shape
(2, 3)
)",
             [](const Shape& s, DType t, Device d) { return empty(s, t, d); });
  m.def(
      "full",
      [](const Shape& size, Scalar value, MaybeDType dtype, MaybeDevice device, bool requires_grad) {
        const DType own = value.kind() == float64 ? float32 : value.kind();
        return finished(full(size, value, dtype.value_or(own), device.value_or(cpu)), {}, requires_grad);
      },
      py::arg("size"), py::arg("fill_value"), py::kw_only(), py::arg("dtype") = py::none(),
      py::arg("device") = py::none(), py::arg("requires_grad") = false,
      R"(A tensor of one value. Without `dtype`: float32, int64 or bool, as the value is.

>>> import anello
>>> anello.full((2,), 7).tolist()
[7, 7]
)");
  m.def(
      "full_like",
      [](const Tensor& input, Scalar value, MaybeDType dtype, MaybeDevice device) {
        return full(input.shape(), value, dtype.value_or(input.dtype()), device.value_or(input.device()));
      },
      py::arg("input"), py::arg("fill_value"), py::kw_only(), py::arg("dtype") = py::none(),
      py::arg("device") = py::none(),
      R"(A tensor of one value with the shape, dtype and device of `input`.

>>> import anello
>>> anello.full_like(anello.zeros(2), 3).tolist()
[3.0, 3.0]
)");
  bind_like(m, "zeros_like", R"(Zeros with the shape, dtype and device of `input`.

>>> import anello
>>> anello.zeros_like(anello.tensor([1, 2])).tolist()
[0, 0]
)",
            [](const Shape& s, DType t, Device d) { return zeros(s, t, d); });
  bind_like(m, "ones_like", R"(Ones with the shape, dtype and device of `input`.

>>> import anello
>>> anello.ones_like(anello.tensor([5, 6])).tolist()
[1, 1]
)",
            [](const Shape& s, DType t, Device d) { return ones(s, t, d); });
  bind_like(m, "empty_like", R"(Unwritten memory with the shape, dtype and device of `input`.

>>> import anello
>>> anello.empty_like(anello.zeros(4)).shape
(4,)
)",
            [](const Shape& s, DType t, Device d) { return empty(s, t, d); });
}

void bind_random(py::module_& m) {
  bind_sized(m, "rand", R"(Uniform numbers in [0, 1): rand(2, 3). The same seed gives the same numbers on every machine.

>>> import anello
>>> anello.manual_seed(0)
>>> x = anello.rand(100)
>>> bool(0 <= x.min() and x.max() < 1)
True
)",
             [](const Shape& s, DType t, Device d) { return rand(s, t, d); });
  bind_sized(m, "randn", R"(Normal numbers with mean 0 and standard deviation 1: randn(2, 3).

>>> import anello
>>> anello.manual_seed(0)
>>> anello.randn(2, 3).shape
(2, 3)
)",
             [](const Shape& s, DType t, Device d) { return randn(s, t, d); });
  const auto integers = [](int64_t low, int64_t high, const Shape& size, MaybeDType dtype, MaybeDevice device) {
    return randint(low, high, size, dtype.value_or(int64), device.value_or(cpu));
  };
  m.def(
      "randint",
      [integers](int64_t high, const Shape& size, MaybeDType dtype, MaybeDevice device) {
        return integers(0, high, size, dtype, device);
      },
      py::arg("high"), py::arg("size"), py::kw_only(), py::arg("dtype") = py::none(), py::arg("device") = py::none());
  m.def("randint", integers, py::arg("low"), py::arg("high"), py::arg("size"), py::kw_only(),
        py::arg("dtype") = py::none(), py::arg("device") = py::none(),
        R"(Integers in [low, high), int64 unless `dtype` says otherwise. low defaults to 0.

>>> import anello
>>> x = anello.randint(10, (100,))
>>> bool(0 <= x.min() and x.max() < 10)
True
)");
  m.def(
      "randperm", [](int64_t n) { return randperm(n); }, py::arg("n"),
      R"(A random order of 0 .. n-1 (int64).

>>> import anello
>>> sorted(anello.randperm(4).tolist())
[0, 1, 2, 3]
)");
  m.def(
      "manual_seed", [](const py::int_& seed) { manual_seed(seed_from("manual_seed", seed)); }, py::arg("seed"),
      R"(Restarts the process's random numbers: initialisation, dropout, rand() and friends. seed: an integer of at most
64 bits; a negative one counts as seed + 2^64.

>>> import anello
>>> anello.manual_seed(1)
>>> a = anello.rand(3)
>>> anello.manual_seed(1)
>>> (a == anello.rand(3)).all().item()
True
)");
  m.def(
      "get_rng_state", [] { return std::make_pair(default_generator().seed(), default_generator().position()); },
      R"(The state of the process's random numbers, (seed, draws so far), for set_rng_state().

>>> import anello
>>> anello.manual_seed(5)
>>> anello.get_rng_state()
(5, 0)
)");
  m.def(
      "set_rng_state",
      [](std::pair<uint64_t, uint64_t> state) { default_generator().set_state(state.first, state.second); },
      py::arg("state"),
      R"(Continues the random numbers where get_rng_state() was asked.

>>> import anello
>>> state = anello.get_rng_state()
>>> a = anello.rand(2)
>>> anello.set_rng_state(state)
>>> (a == anello.rand(2)).all().item()
True
)");
}

}  // namespace

namespace {

/// `depth`: sequences around it.
Tensor from_data(PyObject* data, std::optional<DType> dtype, int depth) {
  check<ShapeError>(depth <= kMaxDims, "tensor", "more than ", kMaxDims,
                    " sequences in one another. Hint: does a list hold itself?");
  if (is_tensor(data)) return converted(tensor_of(data), dtype);
  if (is_number(data)) {
    const Scalar value = to_scalar(data);
    const DType type = dtype.value_or(value.kind() == float64 ? float32 : value.kind());
    check_fits(value.to_int64(), value.kind(), type);
    return full({}, value, type);
  }
  if (is_array(data)) return converted(tensor_from_buffer("tensor", data), dtype);
  if (!PySequence_Check(data) && PyObject_HasAttrString(data, "__array__") != 0) {
    const py::object array = py::module_::import("numpy").attr("asarray")(py::handle(data));
    return converted(tensor_from_buffer("tensor", array), dtype);
  }
  if (!holds_tensors(data)) return Nested(data).tensor(dtype);
  std::vector<Tensor> rows;
  for (const py::handle row : py::reinterpret_borrow<py::sequence>(data))
    rows.push_back(from_data(row.ptr(), dtype, depth + 1));
  const NoGradGuard no_grad;
  return stack(rows, 0);
}

}  // namespace

Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype) { return from_data(data, dtype, 0); }

void bind_create(py::module_& m) {
  bind_from_data(m);
  bind_filled(m);
  bind_ranges(m);
  bind_random(m);
}

}  // namespace anello::python
