// The parts of anello.optim's bindings.
// Main entry: bind_optimizers(), bind_schedules().
#pragma once

#include "python_object.h"

namespace anello::python {

void bind_optimizers(py::module_& m);
/// After bind_optimizers().
void bind_schedules(py::module_& m);

}  // namespace anello::python
