// States (tensors and plain values by name) as Python dicts.
// Main entry: state_from_dict(), dict_from_state().
#pragma once

#include "python_object.h"

#include <anello/core/state.h>

namespace anello::python {

/// A dict of tensors, numbers, strings, None, lists of numbers or of strings, and dicts of those, whose names are
/// joined with dots. Raises DTypeError that names an entry of another kind, ValueError for two entries of one joined
/// name.
State state_from_dict(const char* op, const py::dict& dict);
/// The same of tensors only.
TensorMap tensors_from_dict(const char* op, const py::dict& dict);
/// A StateDict: a dict under full names, in which state["model"] is the dict of all that begin with "model.".
py::object dict_from_state(const State& state);

void bind_state(py::module_& m);

}  // namespace anello::python
