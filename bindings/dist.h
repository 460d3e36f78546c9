// The parts of anello.dist's bindings.
// Main entry: bind_communicator(), bind_data_parallel().
#pragma once

#include "python_object.h"

#include <anello/dist/communicator.h>

#include <memory>
#include <string>

namespace anello::python {

using CommunicatorPtr = std::shared_ptr<dist::Communicator>;

/// "sum" and its like. Raises ValueError with the nearest for another name.
dist::ReduceOp reduce_op_from_name(const std::string& name);
/// The group given, or that of all ranks. Without the GIL.
CommunicatorPtr group_or_world(const CommunicatorPtr& communicator);

void bind_communicator(py::module_& m);
void bind_collective_functions(py::module_& m);
void bind_data_parallel(py::module_& m);
void bind_dist_layers(py::module_& m);

}  // namespace anello::python
