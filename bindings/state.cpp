// States as Python dicts, and the files that hold them.
// Main entry: state_from_dict(), dict_from_state(), bind_state().
#include "state.h"

#include "bindings.h"

#include <anello/core/checkpoint.h>

#include <cmath>

namespace anello::python {
namespace {

constexpr int kMaxDepth = 100;  // of dicts in dicts

template <class T, class F>
std::vector<T> collect(const py::sequence& list, const F& value) {
  std::vector<T> values;
  for (const py::handle item : list) values.push_back(value(item));
  return values;
}

[[noreturn]] void fail_kind(const char* op, const std::string& name, py::handle value) {
  fail<DTypeError>(op, "'", name, "' is a ", Py_TYPE(value.ptr())->tp_name,
                   "; a state holds tensors, numbers, strings, None, lists of numbers or of strings, and dicts of "
                   "those. Hint: keep other things as JSON text.");
}

/// A double that has the number's value; integers beyond 2^53 may have none.
double to_double(const char* op, const std::string& name, py::handle item) {
  const Scalar number = to_scalar(item.ptr());
  const bool exact =
      std::abs(number.to_double()) < 0x1p63 && static_cast<int64_t>(number.to_double()) == number.to_int64();
  check<ValueError>(number.kind() != int64 || exact, op, "'", name, "' mixes floats with the integer ",
                    number.to_int64(), ", which no float is equal to. Hint: make it two lists.");
  return number.to_double();
}

StateValue list_from(const char* op, const std::string& name, const py::sequence& list) {
  bool floats = false, bools = false, numbers = false, strings = false;
  for (const py::handle item : list) {
    if (py::isinstance<py::str>(item)) {
      strings = true;
    } else if (is_number(item.ptr())) {
      const DType kind = to_scalar(item.ptr()).kind();
      (kind == bool_ ? bools : numbers) = true;
      floats = floats || kind == float64;
    } else {
      fail_kind(op, name, item);
    }
  }
  check<DTypeError>(bools + numbers + strings <= 1, op, "'", name,
                    "' is a list of several kinds. Hint: numbers alone, bools alone or strings alone.");
  if (strings)
    return collect<std::string>(list,
                                [&](py::handle item) { return text_of(op, concat("'", name, "'").c_str(), item); });
  if (bools) return collect<bool>(list, [](py::handle item) { return to_scalar(item.ptr()).to_int64() != 0; });
  if (floats) return collect<double>(list, [&](py::handle item) { return to_double(op, name, item); });
  return collect<int64_t>(list, [](py::handle item) { return to_scalar(item.ptr()).to_int64(); });
}

StateValue value_from(const char* op, const std::string& name, py::handle value) {
  if (value.is_none()) return std::monostate();
  if (py::isinstance<py::str>(value)) return text_of(op, concat("'", name, "'").c_str(), value);
  if (is_number(value.ptr())) {
    const Scalar number = to_scalar(value.ptr());
    if (number.kind() == bool_) return number.to_int64() != 0;
    if (number.kind() == int64) return number.to_int64();
    return number.to_double();
  }
  if (!py::isinstance<py::list>(value) && !py::isinstance<py::tuple>(value)) fail_kind(op, name, value);
  return list_from(op, name, py::reinterpret_borrow<py::sequence>(value));
}

void add_dict(const char* op, const std::string& prefix, const py::dict& dict, State& state, int depth = 0) {
  check<ValueError>(depth <= kMaxDepth, op, "dicts lie more than ", kMaxDepth,
                    " deep in one another. Hint: does one contain itself?");
  for (const auto& [key, value] : dict) {
    const std::string name = prefix + text_of(op, "a name", key);
    const bool part = py::isinstance<py::dict>(value);
    if (part && py::len(value) > 0) {
      add_dict(op, name + '.', py::reinterpret_borrow<py::dict>(value), state, depth + 1);
      continue;
    }
    check<ValueError>(state.tensors.find(name) == nullptr && state.values.count(name) == 0, op, "'", name,
                      "' is there twice: names of dicts and entries are joined with dots. Hint: rename one.");
    if (is_tensor(value.ptr()))
      state.tensors.set(name, tensor_of(value.ptr()));
    else
      state.values[name] = part ? StateValue(EmptyPart()) : value_from(op, name, value);
  }
}

struct AsObject {
  py::object operator()(std::monostate) const { return py::none(); }
  py::object operator()(EmptyPart) const { return py::module_::import("anello._state").attr("StateDict")(); }
  template <class T>
  py::object operator()(const T& value) const {
    return py::cast(value);
  }
};

Metadata metadata_from(const std::optional<py::dict>& dict) {
  Metadata metadata;
  if (dict)
    for (const auto& [key, value] : *dict)
      metadata[text_of("save", "a name of the metadata", key)] = text_of("save", "a value of the metadata", value);
  return metadata;
}

void save(const py::object& object, const py::object& path, const std::optional<py::dict>& metadata) {
  check<DTypeError>(py::isinstance<py::dict>(object), "save", "a dict is wanted, got ", Py_TYPE(object.ptr())->tp_name,
                    ". Hint: anello.save(model.state_dict(), path).");
  const State state = state_from_dict("save", py::reinterpret_borrow<py::dict>(object));
  const std::string file = path_of("save", path);
  const Metadata extra = metadata_from(metadata);
  const GilRelease release;
  if (state.values.empty()) return save_safetensors(file, state.tensors, extra);
  check<ValueError>(extra.empty(), "save",
                    "metadata is for files of tensors alone; here are values too. Hint: put it among the values.");
  save_checkpoint(file, state);
}

py::object load(const py::object& path) {
  const std::string file = path_of("load", path);
  State state;
  {
    const GilRelease release;
    Safetensors content = load_safetensors(file);
    state.tensors = std::move(content.tensors);
    if (content.metadata.count("anello.values") != 0) state = load_checkpoint(file);
  }
  return dict_from_state(state);
}

}  // namespace

State state_from_dict(const char* op, const py::dict& dict) {
  State state;
  add_dict(op, "", dict, state);
  return state;
}

TensorMap tensors_from_dict(const char* op, const py::dict& dict) {
  TensorMap tensors;
  for (const auto& [key, value] : dict) {
    const std::string name = text_of(op, "a name", key);
    check<DTypeError>(is_tensor(value.ptr()), op, "'", name, "' is a ", Py_TYPE(value.ptr())->tp_name,
                      ", not a tensor");
    tensors.set(name, tensor_of(value.ptr()));
  }
  return tensors;
}

py::object dict_from_state(const State& state) {
  py::object dict = py::module_::import("anello._state").attr("StateDict")();
  for (const auto& [name, tensor] : state.tensors) dict[py::str(name)] = tensor;
  for (const auto& [name, value] : state.values) dict[py::str(name)] = std::visit(AsObject(), value);
  return dict;
}

void bind_state(py::module_& m) {
  m.def("save", save, py::arg("obj"), py::arg("path"), py::kw_only(), py::arg("metadata") = py::none(),
        R"(Writes a dict to a file: tensors in the safetensors format, with `metadata` (a dict of strings); a dict that
holds numbers, strings or dicts too is written as save_checkpoint() does. The file is written beside its place and
renamed: a failure leaves what was there. Raises IoError.

>>> import anello, os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "net.safetensors")
>>> anello.save(anello.nn.Linear(2, 3).state_dict(), path)
>>> anello.load(path)["weight"].shape
(3, 2)
)");
  m.def("load", load, py::arg("path"),
        R"(What save() or save_checkpoint() wrote, or any safetensors file: a dict of tensors (and values), on the CPU.
Raises IoError that says what is wrong with a file that is missing, truncated or malformed.

>>> import anello, os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "x.safetensors")
>>> anello.save({"x": anello.arange(3)}, path)
>>> anello.load(path)["x"].tolist()
[0, 1, 2]
)");
  m.def(
      "save_checkpoint",
      [](const py::object& path, const py::dict& state) {
        const std::string file = path_of("save_checkpoint", path);
        const State content = state_from_dict("save_checkpoint", state);
        const GilRelease release;
        save_checkpoint(file, content);
      },
      py::arg("path"), py::arg("state"),
      R"(Writes a training state to one file: a dict of tensors, numbers, strings, None, lists of numbers or of
strings, and dicts of those. Beside it path + '.json' holds the values for people to read. Numbers keep every bit; a failure leaves the file
that was there. Raises IoError.

>>> import anello, os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "run.ckpt")
>>> anello.save_checkpoint(path, {"model": {"w": anello.ones(2)}, "epoch": 3})
>>> state = anello.load_checkpoint(path)
>>> state["epoch"], state["model"]["w"].tolist()
(3, [1.0, 1.0])
)");
  m.def(
      "load_checkpoint",
      [](const py::object& path) {
        const std::string file = path_of("load_checkpoint", path);
        State state;
        {
          const GilRelease release;
          state = load_checkpoint(file);
        }
        return dict_from_state(state);
      },
      py::arg("path"),
      R"(The state that save_checkpoint() wrote: a dict under full names, in which state["model"] is the dict of all
that begin with "model.". Raises IoError for a file that is missing, damaged, or holds no state.

>>> import anello, os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "run.ckpt")
>>> anello.save_checkpoint(path, {"rates": [0.5, 0.25]})
>>> anello.load_checkpoint(path)["rates"]
[0.5, 0.25]
)");
}

}  // namespace anello::python
