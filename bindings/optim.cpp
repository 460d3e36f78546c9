// Optimizers as Python classes, with parameter groups that read and write like dicts.
// Main entry: bind_optimizers().
#include "optim.h"

#include "bindings.h"
#include "state.h"

#include <anello/autograd/grad_mode.h>
#include <anello/optim/adam.h>
#include <anello/optim/averaging.h>
#include <anello/optim/clip.h>
#include <anello/optim/muon.h>
#include <anello/optim/sgd.h>

#include <set>

namespace anello::python {
namespace {

using optim::Optimizer;
using optim::Options;
using optim::ParamGroup;
using OptimizerPtr = std::shared_ptr<Optimizer>;

/// A parameter group as seen from Python.
struct GroupView {
  OptimizerPtr optimizer;
  size_t index;
  ParamGroup& group() const { return optimizer->param_groups()[index]; }
};

const std::set<std::string> kFlags = {"nesterov", "maximize", "amsgrad", "normalize"};
const std::set<std::string> kCounts = {"steps"};

py::object option_value(const std::string& name, double value) {
  if (kFlags.count(name) != 0) return py::bool_(value != 0);
  if (kCounts.count(name) != 0) return py::int_(static_cast<int64_t>(value));
  return py::float_(value);
}

/// Sets one option; betas stands for beta1 and beta2, coefficients for a, b and c.
void set_option(Options& options, const std::string& name, py::handle value) {
  const auto set_all = [&](std::initializer_list<const char*> parts) {
    check<TypeError>(is_iterable(value), "optimizer", name, " takes ", parts.size(), " numbers, got ", told(value));
    std::vector<double> values;
    for (const py::handle item : py::iter(value)) values.push_back(number_of("optimizer", name.c_str(), item));
    check<ValueError>(values.size() == parts.size(), "optimizer", name, " takes ", parts.size(), " numbers, got ",
                      values.size());
    size_t i = 0;
    for (const char* part : parts) options.set(part, values[i++]);
  };
  if (name == "betas") return set_all({"beta1", "beta2"});
  if (name == "coefficients") return set_all({"a", "b", "c"});
  check<DTypeError>(is_number(value.ptr()), "optimizer", "option '", name, "' is a number, not a ",
                    Py_TYPE(value.ptr())->tp_name);
  options.set(name, to_scalar(value.ptr()).to_double());
}

py::object get_item(const GroupView& view, const std::string& name) {
  const ParamGroup& group = view.group();
  if (name == "params") {
    py::list params;
    for (const Tensor& p : group.params) params.append(wrap_parameter(p));
    return params;
  }
  if (name == "betas" && group.options.contains("beta1"))
    return py::make_tuple(group.options.at("beta1"), group.options.at("beta2"));
  return option_value(name, group.options.at(name));
}

void set_item(const GroupView& view, const std::string& name, const py::object& value) {
  check<ValueError>(name != "params", "optimizer",
                    "the parameters of a group cannot be changed. Hint: add_param_group().");
  set_option(view.group().options, name, value);
}

py::list group_keys(const GroupView& view) {
  py::list keys;
  keys.append("params");
  for (const auto& [name, value] : view.group().options) keys.append(name);
  return keys;
}

py::list group_items(const GroupView& view) {
  py::list items;
  for (const py::handle key : group_keys(view))
    items.append(py::make_tuple(key, get_item(view, key.cast<std::string>())));
  return items;
}

std::string group_repr(const GroupView& view) {
  std::string text = concat("{'params': [", view.group().params.size(), " tensors]");
  for (const auto& [name, value] : view.group().options)
    text += concat(", '", name, "': ", std::string(py::repr(option_value(name, value))));
  return text + "}";
}

std::vector<Tensor> tensors_of(const py::handle& object) {
  if (is_tensor(object.ptr())) return {tensor_of(object.ptr())};
  check<TypeError>(is_iterable(object), "optimizer", "parameters are tensors, got ", told(object),
                   ". Hint: pass model.parameters().");
  std::vector<Tensor> tensors;
  for (const py::handle item : py::iter(object)) {
    check<DTypeError>(is_tensor(item.ptr()), "optimizer", "a parameter is a tensor, not a ",
                      Py_TYPE(item.ptr())->tp_name, ". Hint: pass model.parameters(), or dicts with 'params'.");
    tensors.push_back(tensor_of(item.ptr()));
  }
  return tensors;
}

/// The options a dict gives. Which are known is the optimizer's to say, at add_param_group(): an unknown one is named
/// there.
std::pair<std::vector<Tensor>, py::dict> split_group(const py::handle& group) {
  const py::dict copy = py::reinterpret_borrow<py::dict>(group).attr("copy")();
  check<ValueError>(copy.contains("params"), "optimizer", "a parameter group needs 'params'");
  const std::vector<Tensor> params = tensors_of(copy["params"]);
  PyDict_DelItemString(copy.ptr(), "params");
  return {params, copy};
}

/// A dict as a group: the defaults, with what the dict says instead. An unknown option is named there.
ParamGroup group_from_dict(const py::handle& group, const Options& defaults) {
  const auto [params, given] = split_group(group);
  ParamGroup made{params, defaults};
  for (const auto& [name, value] : given)
    set_option(made.options, text_of("optimizer", "the name of an option", name), value);
  return made;
}

template <class T, class O>
std::shared_ptr<T> make_optimizer(const py::object& params, const O& options) {
  check<TypeError>(is_iterable(params), "optimizer", "parameters are tensors, or dicts with 'params', got ",
                   told(params), ". Hint: pass model.parameters().");
  const py::list list = is_tensor(params.ptr()) ? py::list(py::make_tuple(params)) : py::list(params);
  check<ValueError>(
      list.size() > 0, "optimizer",
      "there are no parameters. Hint: an iterator is empty after its first use; pass model.parameters() anew.");
  if (!py::isinstance<py::dict>(list[0])) return std::make_shared<T>(tensors_of(list), options);
  std::vector<ParamGroup> groups;
  for (const py::handle group : list) {
    check<DTypeError>(py::isinstance<py::dict>(group), "optimizer", "the first element is a dict, another a ",
                      Py_TYPE(group.ptr())->tp_name);
    groups.push_back(group_from_dict(group, options));
  }
  return std::make_shared<T>(groups, options);
}

py::object step(Optimizer& self, const py::object& closure) {
  py::object loss = py::none();
  if (!closure.is_none()) {
    const EnableGradGuard recording;
    loss = closure();
  }
  const GilRelease release;
  self.step();
  return loss;
}

void bind_groups(py::module_& m) {
  py::class_<GroupView>(
      m, "ParamGroup",
      R"(One parameter group of an optimizer: reads and writes like a dict. 'params' is the list of its parameters,
everything else an option.

>>> import anello
>>> sgd = anello.optim.SGD([anello.zeros(2, requires_grad=True)], lr=0.1)
>>> sgd.param_groups[0]["lr"] = 0.01
>>> sgd.param_groups[0]["lr"], sgd.param_groups[0]["nesterov"]
(0.01, False)
)")
      .def("__getitem__", get_item, py::arg("name"))
      .def("__setitem__", set_item, py::arg("name"), py::arg("value"))
      .def("__contains__",
           [](const GroupView& view, const std::string& name) {
             return name == "params" || view.group().options.contains(name);
           })
      .def("__len__", [](const GroupView& view) { return view.group().options.size() + 1; })
      .def("__iter__", [](const GroupView& view) { return py::iter(group_keys(view)); })
      .def("keys", group_keys, "The names: 'params' and the options.")
      .def("items", group_items, "Pairs of name and value.")
      .def(
          "get",
          [](const GroupView& view, const std::string& name, const py::object& value) {
            return name == "params" || view.group().options.contains(name) ? get_item(view, name) : value;
          },
          py::arg("name"), py::arg("default") = py::none(), "The value of a name, or `default`.")
      .def("__repr__", group_repr);
}

void bind_base(py::module_& m) {
  py::class_<Optimizer, OptimizerPtr>(m, "Optimizer", "The base of all optimizers.")
      .def("step", step, py::arg("closure") = py::none(),
           "Updates every parameter that has a gradient. A closure, when given, is called first and its result "
           "returned.")
      .def(
          "zero_grad", [](Optimizer& self, bool) { self.zero_grad(); }, py::arg("set_to_none") = true,
          "Makes the gradient of every parameter None.")
      .def(
          "add_param_group",
          [](Optimizer& self, const py::dict& dict) {
            const ParamGroup group = group_from_dict(dict, self.defaults());
            self.add_param_group(group.params, group.options);
          },
          py::arg("param_group"), "Adds a dict of 'params' and the options that differ from the defaults.")
      .def_property_readonly(
          "param_groups",
          [](const OptimizerPtr& self) {
            py::list groups;
            for (size_t i = 0; i < self->param_groups().size(); ++i) groups.append(GroupView{self, i});
            return groups;
          },
          "The groups as a list of ParamGroup; what is written to one counts from the next step on.")
      .def_property_readonly(
          "defaults",
          [](const Optimizer& self) {
            py::dict defaults;
            for (const auto& [name, value] : self.defaults()) defaults[py::str(name)] = option_value(name, value);
            return defaults;
          },
          "The options of a group that says nothing else.")
      .def(
          "state_dict", [](const Optimizer& self) { return dict_from_state(self.state_dict()); },
          "Tensors and values by name, for save_checkpoint(). The tensors share memory with the optimizer.")
      .def(
          "load_state_dict",
          [](Optimizer& self, const py::dict& state) {
            self.load_state_dict(state_from_dict("load_state_dict", state));
          },
          py::arg("state_dict"),
          "Takes over what state_dict() gave. Raises ValueError, having changed nothing, when it does not fit.")
      .def("__reduce__",
           [](const Optimizer& self) {
             fail<DTypeError>(self.class_name(),
                              "an optimizer cannot be copied or pickled. Hint: make another one over "
                              "the other model's parameters, and load_state_dict(optimizer.state_dict()).");
           })
      .def("__repr__", [](const OptimizerPtr& self) {
        std::string text = self->class_name() + " (";
        for (size_t i = 0; i < self->param_groups().size(); ++i)
          text += concat("\n  group ", i, ": ", group_repr({self, i}));
        return text + "\n)";
      });
}

void bind_sgd(py::module_& m) {
  py::class_<optim::SGD, Optimizer, std::shared_ptr<optim::SGD>>(
      m, "SGD",
      R"(Stochastic gradient descent: g = grad + weight_decay p; v = momentum v + (1 - dampening) g (v = g at first);
p = p - lr (g + momentum v if nesterov else v). params: tensors, or dicts of 'params' and options of their own.

>>> import anello
>>> w = anello.tensor([1.0], requires_grad=True)
>>> sgd = anello.optim.SGD([w], lr=0.1)
>>> (w * w).sum().backward()
>>> sgd.step()
>>> round(w.item(), 4)
0.8
)")
      .def(py::init([](const py::object& params, double lr, double momentum, double dampening, double weight_decay,
                       bool nesterov, bool maximize) {
             return make_optimizer<optim::SGD>(
                 params, optim::SGDOptions{lr, momentum, dampening, weight_decay, nesterov, maximize});
           }),
           py::arg("params"), py::arg("lr") = 1e-3, py::arg("momentum") = 0.0, py::arg("dampening") = 0.0,
           py::arg("weight_decay") = 0.0, py::arg("nesterov") = false, py::kw_only(), py::arg("maximize") = false);
}

template <class T, class... Bases>
void bind_adam(py::module_& m, const char* name, double decay, const char* doc) {
  py::class_<T, Bases..., std::shared_ptr<T>>(m, name, doc)
      .def(py::init([](const py::object& params, double lr, std::pair<double, double> betas, double eps,
                       double weight_decay, bool amsgrad, bool maximize) {
             return make_optimizer<T>(
                 params, optim::AdamOptions{lr, betas.first, betas.second, eps, weight_decay, amsgrad, maximize});
           }),
           py::arg("params"), py::arg("lr") = 1e-3, py::arg("betas") = std::make_pair(0.9, 0.999),
           py::arg("eps") = 1e-8, py::arg("weight_decay") = decay, py::arg("amsgrad") = false, py::kw_only(),
           py::arg("maximize") = false);
}

void bind_muon(py::module_& m) {
  py::class_<optim::Muon, Optimizer, std::shared_ptr<optim::Muon>>(
      m, "Muon",
      R"(Momentum whose matrix is brought close to an orthogonal one: v = momentum v + grad; u = grad + momentum v if
nesterov else v; p = p - lr orthogonalize(u as [out, the rest]). For parameters of two dims or more. normalize
rescales each weight to Frobenius norm sqrt(out) before its update. K. Jordan et al., 2024.

>>> import anello
>>> w = anello.nn.Parameter(anello.eye(2))
>>> muon = anello.optim.Muon([w], lr=0.5, momentum=0)
>>> w.sum().backward()
>>> muon.step()
)")
      .def(py::init([](const py::object& params, double lr, double momentum, bool nesterov, int64_t steps,
                       std::array<double, 3> c, bool normalize, double weight_decay) {
             return make_optimizer<optim::Muon>(
                 params, optim::MuonOptions{lr, momentum, nesterov, steps, c[0], c[1], c[2], normalize, weight_decay});
           }),
           py::arg("params"), py::arg("lr") = 0.02, py::arg("momentum") = 0.9, py::arg("nesterov") = true,
           py::arg("steps") = 3, py::arg("coefficients") = std::array<double, 3>{3.4445, -4.7750, 2.0315},
           py::kw_only(), py::arg("normalize") = false, py::arg("weight_decay") = 0.0);
  m.def(
      "orthogonalize",
      [](const Tensor& g, int64_t steps, std::array<double, 3> coefficients, double eps) {
        return optim::orthogonalize(g, steps, coefficients, eps);
      },
      py::arg("g"), py::arg("steps") = 3, py::arg("coefficients") = std::array<double, 3>{3.4445, -4.7750, 2.0315},
      py::arg("eps") = 1e-7, NoGil(),
      R"(A matrix near the orthogonal one nearest to g: all singular values are brought near 1 by rounds of a quintic
polynomial. Not recorded.

>>> import anello
>>> q = anello.optim.orthogonalize(anello.eye(3) * 5, steps=5)
>>> bool((abs(q - anello.eye(3)) < 0.4).all())
True
)");
}

void bind_clipping(py::module_& m) {
  m.def(
      "clip_grad_norm_",
      [](const py::object& parameters, double max_norm, bool error_if_nonfinite) {
        const std::vector<Tensor> params = tensors_of(parameters);
        const GilRelease release;
        return full({}, optim::clip_grad_norm_(params, max_norm, error_if_nonfinite), float64);
      },
      py::arg("parameters"), py::arg("max_norm"), py::kw_only(), py::arg("error_if_nonfinite") = false,
      R"(Scales all gradients together, in place, so that their joint Euclidean norm is at most max_norm. Returns the
norm before, as a tensor of one number. A norm that is NaN or infinite raises Error when error_if_nonfinite.

>>> import anello
>>> w = anello.tensor([3.0, 4.0], requires_grad=True)
>>> (w * w).sum().backward()
>>> anello.nn.utils.clip_grad_norm_([w], 1.0).item()
10.0
>>> round(w.grad.norm().item(), 4)
1.0
)");
  m.def(
      "clip_grad_value_",
      [](const py::object& parameters, double clip_value) {
        const std::vector<Tensor> params = tensors_of(parameters);
        const GilRelease release;
        optim::clip_grad_value_(params, clip_value);
      },
      py::arg("parameters"), py::arg("clip_value"),
      R"(Limits every element of every gradient to [-clip_value, clip_value], in place.

>>> import anello
>>> w = anello.tensor([3.0], requires_grad=True)
>>> (w * w).sum().backward()
>>> anello.nn.utils.clip_grad_value_([w], 0.5)
>>> w.grad.tolist()
[0.5]
)");
}

}  // namespace

void bind_optimizers(py::module_& m) {
  bind_groups(m);
  bind_base(m);
  bind_sgd(m);
  bind_adam<optim::Adam, Optimizer>(
      m, "Adam", 0.0, R"(Adam (arXiv 1412.6980), bias-corrected: m and v are the running means of g and g^2 (betas);
p = p - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps). weight_decay is added to the gradient.

>>> import anello
>>> w = anello.tensor([1.0], requires_grad=True)
>>> adam = anello.optim.Adam([w], lr=0.1)
>>> (w * w).sum().backward()
>>> adam.step()
>>> round(w.item(), 4)
0.9
)");
  bind_adam<optim::AdamW, optim::Adam>(
      m, "AdamW", 0.01,
      R"(Adam with weight decay apart from the gradient (arXiv 1711.05101): p is scaled by 1 - lr weight_decay.

>>> import anello
>>> w = anello.tensor([1.0], requires_grad=True)
>>> adamw = anello.optim.AdamW([w], lr=0.1)
>>> (w * w).sum().backward()
>>> adamw.step()
>>> round(w.item(), 4)
0.899
)");
  bind_muon(m);
  bind_clipping(m);
}

}  // namespace anello::python
