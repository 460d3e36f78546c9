// Gradients as functions: backward(), grad(), gradcheck(), the recording mode, and what grad_fn shows.
// Main entry: bind_autograd().
#include "bindings.h"
#include "tensor_type.h"

#include <anello/autograd/engine.h>
#include <anello/autograd/grad_mode.h>
#include <anello/autograd/gradcheck.h>
#include <anello/autograd/node.h>

namespace anello::python {
namespace {

/// A recorded operation, for people to look at.
struct NodeBox {
  Ref<Node> node;
};

/// One tensor or a sequence of them (and None, where allowed).
std::vector<Tensor> tensor_list(const char* op, const py::object& object, bool allow_none = false) {
  if (object.is_none() && allow_none) return {};
  if (is_tensor(object.ptr())) return {tensor_of(object.ptr())};
  check<DTypeError>(py::isinstance<py::sequence>(object) && !py::isinstance<py::str>(object), op,
                    "a tensor or a sequence of tensors is wanted, not ", Py_TYPE(object.ptr())->tp_name);
  std::vector<Tensor> tensors;
  for (const py::handle item : py::reinterpret_borrow<py::sequence>(object)) {
    const bool fits = is_tensor(item.ptr()) || (allow_none && item.is_none());
    check<DTypeError>(fits, op, "element ", tensors.size(), " is a ", Py_TYPE(item.ptr())->tp_name, ", not a tensor");
    tensors.push_back(item.is_none() ? Tensor() : tensor_of(item.ptr()));
  }
  return tensors;
}

void run_backward(const py::object& tensors, const py::object& gradients, std::optional<bool> retain_graph,
                  bool create_graph) {
  const std::vector<Tensor> outputs = tensor_list("backward", tensors),
                            grads = tensor_list("backward", gradients, true);
  const GilRelease release;
  backward(outputs, grads, retain_graph.value_or(create_graph), create_graph);
}

py::tuple run_grad(const py::object& outputs, const py::object& inputs, const py::object& gradients,
                   std::optional<bool> retain_graph, bool create_graph, bool allow_unused) {
  const std::vector<Tensor> from = tensor_list("grad", outputs), to = tensor_list("grad", inputs),
                            grads = tensor_list("grad", gradients, true);
  std::vector<Tensor> result;
  {
    const GilRelease release;
    result = grad(from, to, grads, retain_graph.value_or(create_graph), create_graph, allow_unused);
  }
  return py::cast(result).cast<py::tuple>();
}

/// Runs the C++ check on a Python function. Arguments that are no tensors are passed through.
bool run_gradcheck(const py::object& function, const py::object& inputs, const GradcheckOptions& options, bool raise) {
  const py::list arguments = is_tensor(inputs.ptr()) ? py::list(py::make_tuple(inputs)) : py::list(inputs);
  std::vector<Tensor> tensors;
  std::vector<size_t> places;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const py::object argument = arguments[i];
    if (!is_tensor(argument.ptr())) continue;
    tensors.push_back(tensor_of(argument.ptr()));
    places.push_back(i);
  }
  const auto call = [&](const std::vector<Tensor>& values) {
    const GilAcquire gil;
    py::list now(arguments);
    for (size_t i = 0; i < places.size(); ++i) now[places[i]] = values[i];
    return tensor_list("gradcheck", function(*now));
  };
  try {
    const GilRelease release;
    return gradcheck(call, tensors, options);
  } catch (const Error&) {
    if (raise) throw;
    return false;
  }
}

constexpr const char* kGradcheckDoc =
    R"(Compares the gradients of func(*inputs) with central differences, for every element of every float64 input that
requires one. Raises Error that names input, element and both values at the first mismatch (or returns False, with
raise_exception=False); returns True.

>>> import anello
>>> x = anello.tensor([0.3, 0.7], dtype=anello.float64, requires_grad=True)
>>> anello.autograd.gradcheck(anello.exp, x)
True
)";
constexpr const char* kGradgradcheckDoc = R"(gradcheck() of the gradient: checks second derivatives.

>>> import anello
>>> x = anello.tensor([0.3, 0.7], dtype=anello.float64, requires_grad=True)
>>> anello.autograd.gradgradcheck(anello.exp, x)
True
)";

void bind_gradcheck(py::module_& m, const char* name, bool second_order, const char* doc) {
  m.def(
      name,
      [second_order](const py::object& func, const py::object& inputs, double eps, double atol, double rtol,
                     bool raise_exception) {
        return run_gradcheck(func, inputs, {eps, atol, rtol, second_order}, raise_exception);
      },
      py::arg("func"), py::arg("inputs"), py::kw_only(), py::arg("eps") = 1e-6, py::arg("atol") = 1e-5,
      py::arg("rtol") = 1e-3, py::arg("raise_exception") = true, doc);
}

}  // namespace

py::object make_node_object(const Ref<Node>& node) { return py::cast(NodeBox{node}); }

void bind_autograd(py::module_& m) {
  py::class_<NodeBox>(m, "Node", "An operation that autograd recorded; str() is its name.")
      .def(
          "name", [](const NodeBox& box) { return std::string(box.node->name()); }, "The operation's name, as 'mul'.")
      .def_property_readonly(
          "next_functions",
          [](const NodeBox& box) {
            py::list next;
            for (const Edge& edge : box.node->next())
              next.append(py::make_tuple(edge.node ? make_node_object(edge.node) : py::none(), edge.slot));
            return py::tuple(next);
          },
          "Where the gradients of its inputs go: (node or None, output of that node) each.")
      .def("__str__", [](const NodeBox& box) { return std::string(box.node->name()); })
      .def("__repr__", [](const NodeBox& box) { return concat("<", box.node->name(), ">"); })
      .def("__hash__", [](const NodeBox& box) { return reinterpret_cast<size_t>(box.node.get()) >> 4; })
      .def("__eq__", [](const NodeBox& a, const py::object& b) {
        return py::isinstance<NodeBox>(b) && b.cast<NodeBox&>().node == a.node;
      });

  m.def("is_grad_enabled", &is_grad_enabled, R"(Whether operations of this thread are recorded for backward.

>>> import anello
>>> with anello.no_grad():
...     anello.is_grad_enabled()
False
)");
  m.def("set_grad_enabled", &set_grad_enabled, py::arg("enabled"), "Switches recording in this thread.");
  m.def("backward", run_backward, py::arg("tensors"), py::arg("grad_tensors") = py::none(),
        py::arg("retain_graph") = py::none(), py::arg("create_graph") = false,
        R"(Tensor.backward() of several tensors at once.

>>> import anello
>>> x = anello.tensor(2.0, requires_grad=True)
>>> anello.autograd.backward([x * 3, x * 4])
>>> x.grad.item()
7.0
)");
  m.def("grad", run_grad, py::arg("outputs"), py::arg("inputs"), py::arg("grad_outputs") = py::none(),
        py::arg("retain_graph") = py::none(), py::arg("create_graph") = false, py::arg("allow_unused") = false,
        R"(The gradients of outputs with respect to inputs, as a tuple, without touching any .grad. An input that
outputs do not depend on raises Error, or gives None with allow_unused. create_graph makes the result differentiable.

>>> import anello
>>> x = anello.tensor(3.0, requires_grad=True)
>>> (g,) = anello.grad(x * x * x, x, create_graph=True)
>>> (h,) = anello.grad(g, x)
>>> g.item(), h.item()
(27.0, 18.0)
)");
  bind_gradcheck(m, "gradcheck", false, kGradcheckDoc);
  bind_gradcheck(m, "gradgradcheck", true, kGradgradcheckDoc);
}

}  // namespace anello::python
