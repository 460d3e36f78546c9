// The parts of anello.dist's bindings.
// Main entry: bind_communicator(), bind_data_parallel().
#pragma once

#include "python_object.h"

#include <anello/core/suggest.h>
#include <anello/dist/communicator.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anello::python {

using CommunicatorPtr = std::shared_ptr<dist::Communicator>;

/// The value of a name. Raises ValueError that says what there is none of, and the nearest name.
template <class T>
T choice(std::string_view where, const char* what, const std::string& name,
         const std::vector<std::pair<std::string_view, T>>& all) {
  std::vector<std::string_view> names;
  for (const auto& [valid, value] : all) {
    if (valid == name) return value;
    names.push_back(valid);
  }
  fail<ValueError>(where, "there is no ", what, " '", name, "'.", suggest(name, names));
}
/// "sum" and its like. Raises ValueError with the nearest for another name.
dist::ReduceOp reduce_op_from_name(const std::string& name);
/// The group given, or that of all ranks. Without the GIL.
CommunicatorPtr group_or_world(const CommunicatorPtr& communicator);

void bind_communicator(py::module_& m);
void bind_collective_functions(py::module_& m);
void bind_data_parallel(py::module_& m);
void bind_dist_layers(py::module_& m);

}  // namespace anello::python
