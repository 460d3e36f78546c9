// The extension module anello._C: everything of the Python package that is C++.
// Main entry: PYBIND11_MODULE below.
#include "bindings.h"
#include "dist.h"
#include "nn_module.h"
#include "optim.h"
#include "state.h"
#include "tensor_type.h"

namespace anello::python {
namespace {

void bind_tensors(py::module_& m) {
  bind_errors(m);
  bind_dtype_device(m);
  make_tensor_types(m);
  bind_create(m);
  bind_exchange(m);
  bind_dlpack(m);
  bind_tensor_methods(m);
  bind_system(m);
  bind_state(m);
}

void bind_functions(py::module_& m) {
  bind_elementwise(m);
  bind_binary(m);
  bind_in_place(m);
  bind_reductions(m);
  bind_shape(m);
  bind_network(m);
  bind_losses(m);
}

void bind_layers(py::module_& m) {
  bind_module_class(m);
  bind_basic_layers(m);
  bind_activation_layers(m);
  bind_loss_layers(m);
  bind_containers(m);
}

}  // namespace
}  // namespace anello::python

PYBIND11_MODULE(_C, m) {
  namespace ap = anello::python;
  namespace py = pybind11;
  m.doc() = "The compiled half of anello; the package's other modules say what is public.";
  const auto part = [&](const char* name, const char* doc, auto bind) {
    py::module_ sub = m.def_submodule(name, doc);
    bind(sub);
  };
  ap::bind_tensors(m);
  ap::bind_functions(m);
  part("_autograd", "What anello.autograd is made of.", [&](py::module_& sub) {
    ap::bind_hooks(sub);
    ap::bind_custom_function(sub);
    ap::bind_autograd(sub);
  });
  part("_nn", "What anello.nn is made of.", ap::bind_layers);
  part("_init", "What anello.nn.init is made of.", ap::bind_initialisers);
  part("_optim", "What anello.optim is made of.", [](py::module_& sub) {
    ap::bind_optimizers(sub);
    ap::bind_schedules(sub);
  });
  part("_data", "What anello.data is made of.", ap::bind_data);
  part("_dist", "What anello.dist is made of.", [](py::module_& sub) {
    ap::bind_communicator(sub);
    ap::bind_data_parallel(sub);
    ap::bind_dist_layers(sub);
  });
  part("_dist_functional", "What anello.dist.functional is made of.", ap::bind_collective_functions);
  ap::answer_wrong_calls(m);
  ap::install_interrupt_check();
}
