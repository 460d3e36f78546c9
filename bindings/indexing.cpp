// x[key] and x[key] = value.
// Main entry: tensor_getitem(), tensor_setitem().
//
// Integers, slices, None and ... give views. Integer tensors (lists, arrays) pick rows, several at adjacent places pick
// elements, a bool tensor picks where it is true; those copy. What is not there raises IndexError that names it.
#include "tensor_type.h"

#include <anello/autograd/functions.h>

namespace anello::python {
namespace {

/// A key taken apart: the basic part, and the tensors that pick, with the dim they stand at in the result of the basic
/// part.
struct Key {
  std::vector<Index> basic;
  std::vector<std::pair<int, Tensor>> picks;
};

int64_t to_int64(PyObject* object) {
  const Py_ssize_t value = PyNumber_AsSsize_t(object, PyExc_IndexError);
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

Index slice_index(PyObject* object) {
  auto* slice = reinterpret_cast<PySliceObject*>(object);
  Index index = Index::all();
  if (slice->start != Py_None) index.start = to_int64(slice->start), index.has_start = true;
  if (slice->stop != Py_None) index.stop = to_int64(slice->stop), index.has_stop = true;
  if (slice->step != Py_None) index.step = to_int64(slice->step);
  check<IndexError>(index.step > 0, "index", "a slice's step must be positive, got ", index.step,
                    ". Hint: flip() reverses a dim.");
  return index;
}

/// The tensor that a key's part stands for, if it picks: a tensor of 1 or more dims, a list or an array.
std::optional<Tensor> pick_of(PyObject* part) {
  if (is_tensor(part)) {
    const Tensor& tensor = tensor_of(part);
    check<IndexError>(!is_floating_point(tensor.dtype()), "index", "an index is an integer or bool tensor, got ",
                      tensor.dtype());
    if (tensor.dim() == 0 && tensor.dtype() != bool_) return std::nullopt;  // the same as its integer
    check<IndexError>(tensor.dim() > 0, "index",
                      "a bool tensor of 0 dims is not an index. Hint: use `if`, or x[None].");
    return tensor;
  }
  const bool array = PyObject_CheckBuffer(part) != 0 && !PyBytes_Check(part) && !is_number(part);
  if (!PyList_Check(part) && !array) return std::nullopt;
  Tensor tensor = tensor_from_data(part, std::nullopt);
  if (tensor.numel() == 0 && is_floating_point(tensor.dtype())) tensor = copy_as(tensor, int64);  // x[[]]
  check<IndexError>(!is_floating_point(tensor.dtype()), "index", "an index is an integer or bool list, got one of ",
                    tensor.dtype());
  return tensor;
}

/// Row-major positions of the true elements.
Tensor positions(const Tensor& mask) {
  const std::vector<uint8_t> flags = mask.to_vector<uint8_t>();
  std::vector<int64_t> found;
  for (size_t i = 0; i < flags.size(); ++i)
    if (flags[i] != 0) found.push_back(static_cast<int64_t>(i));
  return from_vector(found);
}

Key parse(const Tensor& x, PyObject* object) {
  const py::tuple parts =
      PyTuple_Check(object) ? py::reinterpret_borrow<py::tuple>(object) : py::make_tuple(py::handle(object));
  // Dims of x that the parts after an ellipsis use up are not its own.
  int used = 0, ellipses = 0;
  std::vector<std::optional<Tensor>> picks;
  for (const py::handle part : parts) {
    picks.push_back(pick_of(part.ptr()));
    if (part.ptr() == Py_Ellipsis)
      ++ellipses;
    else if (!part.is_none())
      used += picks.back() && picks.back()->dtype() == bool_ ? picks.back()->dim() : 1;
  }
  check<IndexError>(ellipses <= 1, "index", "more than one '...'");
  check<IndexError>(used <= x.dim(), "index", "too many indices, ", used, ", for a tensor of shape ", x.shape());

  Key key;
  int result_dim = 0;  // of the basic part's result
  for (size_t i = 0; i < parts.size(); ++i) {
    PyObject* part = py::handle(parts[i]).ptr();
    if (picks[i]) {
      key.picks.emplace_back(result_dim, *picks[i]);
      const int dims = picks[i]->dtype() == bool_ ? picks[i]->dim() : 1;
      for (int d = 0; d < dims; ++d) key.basic.push_back(Index::all());
      result_dim += dims;
    } else if (part == Py_None) {
      key.basic.push_back(Index::new_dim());
      ++result_dim;
    } else if (part == Py_Ellipsis) {
      key.basic.push_back(Index::ellipsis());
      result_dim += x.dim() - used;
    } else if (PySlice_Check(part)) {
      key.basic.push_back(slice_index(part));
      ++result_dim;
    } else {
      check<IndexError>(PyIndex_Check(part) && !PyBool_Check(part), "index",
                        "an index is an integer, slice, None, '...', list or tensor, got ",
                        std::string(py::repr(part)));
      key.basic.emplace_back(to_int64(part));
    }
  }
  return key;
}

Tensor basic_part(const Tensor& x, const Key& key) { return key.basic.empty() ? x : index(x, key.basic); }

/// x[..., mask, ...]: the masked dims become one, of the places where the mask is true.
Tensor pick_mask(const Tensor& x, int dim, const Tensor& mask) {
  for (int i = 0; i < mask.dim(); ++i)
    check<IndexError>(mask.shape()[i] == x.shape()[dim + i], "index", "a mask of shape ", mask.shape(),
                      " does not fit dims ", dim, " and on of shape ", x.shape());
  return index_select(flatten(x, dim, dim + mask.dim() - 1), dim, positions(mask));
}

/// Positions along one dim, checked and counted from the front.
Tensor checked_index(const Tensor& index, int64_t size) {
  if (index.numel() == 0) return cast(index, int64);
  const auto lowest = min(index).item<int64_t>(), highest = max(index).item<int64_t>();
  check<IndexError>(lowest >= -size && highest < size, "index", "index ", lowest < -size ? lowest : highest,
                    " is outside a dim of size ", size);
  const Tensor wide = cast(index, int64);
  return lowest < 0 ? remainder(wide, size) : wide;
}

/// x[..., i, j, ...] with integer tensors at adjacent dims: they broadcast together and their shape replaces those
/// dims.
Tensor pick_elements(const Tensor& x, const std::vector<std::pair<int, Tensor>>& picks) {
  const int first = picks.front().first, count = static_cast<int>(picks.size());
  for (int i = 0; i < count; ++i)
    check<IndexError>(picks[static_cast<size_t>(i)].first == first + i, "index",
                      "index tensors must stand next to each other. Hint: permute() the dims first.");
  Tensor flat;
  for (int i = 0; i < count; ++i) {
    const int64_t size = x.shape()[first + i];
    const Tensor place = checked_index(picks[static_cast<size_t>(i)].second, size);
    flat = flat.defined() ? add(mul(flat, size), place) : place;
  }
  const Tensor joined = count == 1 ? x : flatten(x, first, first + count - 1);
  const Tensor rows = index_select(joined, first, reshape(flat, {flat.numel()}));
  Shape shape;
  for (int i = 0; i < first; ++i) shape.push_back(x.shape()[i]);
  for (int64_t size : flat.shape()) shape.push_back(size);
  for (int i = first + count; i < x.dim(); ++i) shape.push_back(x.shape()[i]);
  return reshape(rows, shape);
}

Tensor get(const Tensor& x, const Key& key) {
  const Tensor part = basic_part(x, key);
  if (key.picks.empty()) return part;
  const bool masks = key.picks[0].second.dtype() == bool_;
  if (!masks || key.picks.size() > 1) {
    for (const auto& [dim, pick] : key.picks)
      check<IndexError>(pick.dtype() != bool_, "index", "a bool tensor cannot be combined with other index tensors");
    return pick_elements(part, key.picks);
  }
  return pick_mask(part, key.picks[0].first, key.picks[0].second);
}

/// x[mask] = value: where() with the mask's dims at the front.
void set_mask(const Tensor& x, const Tensor& mask, const Tensor& value) {
  for (int i = 0; i < mask.dim(); ++i)
    check<IndexError>(mask.shape()[i] == x.shape()[i], "index", "a mask of shape ", mask.shape(),
                      " does not fit shape ", x.shape());
  check<ShapeError>(value.numel() == 1, "index", "x[mask] = value takes one number, got shape ", value.shape(),
                    ". Hint: anello.where(mask, value, x).");
  Shape wide = mask.shape();
  while (wide.size() < x.dim()) wide.push_back(1);
  copy_(x, where(reshape(mask, wide), cast(reshape(value, {}), x.dtype()), x));
}

void set(const Tensor& x, PyObject* object, PyObject* value_object) {
  const Key key = parse(x, object);
  check<DTypeError>(is_tensor(value_object) || is_number(value_object) || PyObject_CheckBuffer(value_object) ||
                        PySequence_Check(value_object),
                    "index", "a tensor takes numbers and tensors, not ", Py_TYPE(value_object)->tp_name);
  const Tensor value =
      is_tensor(value_object)
          ? tensor_of(value_object)
          : tensor_from_data(value_object, is_number(value_object) ? std::optional(x.dtype()) : std::nullopt);
  const GilRelease release(x.numel() >= kGilElements);
  if (key.picks.empty()) return index_set(x, key.basic, value);
  const bool whole_mask = key.picks.size() == 1 && key.picks[0].second.dtype() == bool_ && key.picks[0].first == 0 &&
                          static_cast<int>(key.basic.size()) == key.picks[0].second.dim();
  check<IndexError>(whole_mask, "index",
                    "assignment through index tensors is not supported. Hint: x[mask] = number works, and so does "
                    "anello.where(mask, value, x).");
  set_mask(x, key.picks[0].second, value);
}

}  // namespace

PyObject* tensor_getitem(PyObject* self, PyObject* object) {
  return guarded([&]() -> PyObject* {
    const Tensor& x = tensor_of(self);
    if (PyLong_CheckExact(object) && x.dim() > 0) return wrap(select(x, 0, to_int64(object)));
    const Key key = parse(x, object);
    Tensor result;
    {
      const GilRelease release(!key.picks.empty());
      result = get(x, key);
    }
    return wrap(result);
  });
}

int tensor_setitem(PyObject* self, PyObject* object, PyObject* value) {
  try {
    check<DTypeError>(value != nullptr, "del", "elements of a tensor cannot be deleted");
    set(tensor_of(self), object, value);
    return 0;
  } catch (...) {
    set_error_from_exception();
    return -1;
  }
}

}  // namespace anello::python
