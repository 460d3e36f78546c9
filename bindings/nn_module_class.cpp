// anello.nn.Module in Python: walking over what is registered, mode, state, text.
// Main entry: bind_module_class().
#include "nn_module.h"

#include "state.h"

#include <unordered_set>

namespace anello::python {
namespace {

using nn::Module;
using ModulePtr = std::shared_ptr<Module>;

// --- Walking ---

std::string join(const std::string& path, const std::string& name) { return path.empty() ? name : path + '.' + name; }

void collect_modules(const ModulePtr& module, const std::string& path, std::unordered_set<const Module*>& seen,
                     py::list& found) {
  if (!seen.insert(module.get()).second) return;
  found.append(py::make_tuple(path, module));
  for (const auto& [name, child] : module->named_children()) collect_modules(child, join(path, name), seen, found);
}

py::list named_modules(const ModulePtr& module, const std::string& prefix) {
  std::unordered_set<const Module*> seen;
  py::list found;
  collect_modules(module, prefix, seen, found);
  return found;
}

py::list seconds(const py::list& pairs) {
  py::list list;
  for (const py::handle pair : pairs) list.append(py::object(pair[py::int_(1)]));
  return list;
}

py::list named_parameters(const Module& module, const std::string& prefix, bool recurse) {
  py::list found;
  for (const auto& [name, tensor] : module.named_parameters(recurse))
    found.append(py::make_tuple(join(prefix, name), wrap_parameter(tensor)));
  return found;
}

py::list named_buffers(const Module& module, const std::string& prefix, bool recurse) {
  py::list found;
  for (const auto& [name, tensor] : module.named_buffers(recurse))
    found.append(py::make_tuple(join(prefix, name), tensor));
  return found;
}

ModulePtr submodule(const ModulePtr& module, const std::string& path) {
  module->get_module(path);  // raises, with the names that are there
  ModulePtr found = module;
  for (size_t start = 0; start < path.size();) {
    const size_t dot = std::min(path.find('.', start), path.size());
    found = found->find_module(path.substr(start, dot - start));
    start = dot + 1;
  }
  return found;
}

void apply_to_all(const ModulePtr& module, const py::object& function) {
  for (const ModulePtr& child : module->children()) apply_to_all(child, function);
  function(module);
}

/// `x.to(...)`: a dtype or a device, in either form.
py::object convert(const py::object& self, const py::object& target, const std::optional<DType>& dtype,
                   const std::optional<Device>& device) {
  auto& module = self.cast<Module&>();
  std::optional<DType> to_dtype = dtype;
  std::optional<Device> to_device = device;
  if (!target.is_none()) {
    py::detail::make_caster<Device> as_device;
    const bool word = py::isinstance<py::str>(target);
    const std::string text = word ? text_of("to", "a dtype or device", target) : "";
    if (word ? text.rfind("cpu", 0) == 0 || text.rfind("cuda", 0) == 0 : as_device.load(target, false))
      to_device = target.cast<Device>();
    else
      to_dtype = anello::python::to_dtype(target);
  }
  const GilRelease release;
  if (to_device) module.to(*to_device);
  if (to_dtype) module.to(*to_dtype);
  return self;
}

void bind_walking(BaseModuleClass& cls) {
  // Iterators, as in PyTorch: next(net.parameters()) works.
  cls.def(
         "parameters",
         [](const Module& m, bool recurse) { return py::iter(seconds(named_parameters(m, "", recurse))); },
         py::arg("recurse") = true,
         R"(An iterator over the parameters, here and below; a shared one comes once.

>>> import anello
>>> [tuple(p.shape) for p in anello.nn.Linear(2, 3).parameters()]
[(3, 2), (3,)]
)")
      .def(
          "named_parameters",
          [](const Module& m, const std::string& prefix, bool recurse) {
            return py::iter(named_parameters(m, prefix, recurse));
          },
          py::arg("prefix") = "", py::arg("recurse") = true, R"(An iterator over (full name, parameter).

>>> import anello
>>> [name for name, p in anello.nn.Sequential(anello.nn.Linear(2, 3)).named_parameters()]
['0.weight', '0.bias']
)")
      .def(
          "buffers", [](const Module& m, bool recurse) { return py::iter(seconds(named_buffers(m, "", recurse))); },
          py::arg("recurse") = true,
          R"(An iterator over the buffers, here and below.

>>> import anello
>>> len(list(anello.nn.BatchNorm2d(4).buffers()))
3
)")
      .def(
          "named_buffers",
          [](const Module& m, const std::string& prefix, bool recurse) {
            return py::iter(named_buffers(m, prefix, recurse));
          },
          py::arg("prefix") = "", py::arg("recurse") = true, R"(An iterator over (full name, buffer).

>>> import anello
>>> [name for name, b in anello.nn.BatchNorm2d(4).named_buffers()]
['running_mean', 'running_var', 'num_batches_tracked']
)")
      .def(
          "children", [](const Module& m) { return py::iter(py::cast(m.children())); },
          R"(An iterator over the modules directly below.

>>> import anello
>>> len(list(anello.nn.Sequential(anello.nn.ReLU(), anello.nn.Tanh()).children()))
2
)")
      .def(
          "named_children", [](const Module& m) { return py::iter(py::cast(m.named_children())); },
          R"(An iterator over (name, module directly below).

>>> import anello
>>> [name for name, m in anello.nn.Sequential(anello.nn.ReLU(), anello.nn.Tanh()).named_children()]
['0', '1']
)")
      .def(
          "modules", [](const ModulePtr& m) { return py::iter(seconds(named_modules(m, ""))); },
          R"(An iterator over this module and every one below.

>>> import anello
>>> len(list(anello.nn.Sequential(anello.nn.ReLU()).modules()))
2
)")
      .def(
          "named_modules",
          [](const ModulePtr& m, const std::string& prefix) { return py::iter(named_modules(m, prefix)); },
          py::arg("prefix") = "",
          R"(An iterator over (full name, module), this one first, under ''.

>>> import anello
>>> [name for name, m in anello.nn.Sequential(anello.nn.ReLU()).named_modules()]
['', '0']
)")
      .def("get_submodule", submodule, py::arg("path"),
           R"(The module under a path, as 'layer1.0'. Raises IndexError that lists what there is.

>>> import anello
>>> anello.nn.Sequential(anello.nn.ReLU()).get_submodule("0")
ReLU()
)")
      .def(
          "apply",
          [](const py::object& self, const py::object& fn) {
            apply_to_all(self.cast<ModulePtr>(), fn);
            return self;
          },
          py::arg("fn"), R"(Calls fn(module) on every module, children before their parent; returns the module.

>>> import anello
>>> net = anello.nn.Sequential(anello.nn.Linear(2, 2)).apply(lambda m: print(type(m).__name__))
Linear
Sequential
)")
      .def("num_parameters", &Module::num_parameters, py::arg("trainable_only") = false,
           R"(Number of elements of all parameters.

>>> import anello
>>> anello.nn.Linear(2, 3).num_parameters()
9
)");
}

void bind_mode(BaseModuleClass& cls) {
  cls.def(
         "train",
         [](const py::object& self, bool mode) {
           self.cast<Module&>().train(mode);
           return self;
         },
         py::arg("mode") = true,
         R"(Training mode (the default), or evaluation with mode=False, for this module and everything below.

>>> import anello
>>> anello.nn.Dropout().train(False).training
False
)")
      .def(
          "eval",
          [](const py::object& self) {
            self.attr("train")(false);
            return self;
          },
          R"(Evaluation mode: train(False).

>>> import anello
>>> anello.nn.Dropout().eval()(anello.ones(2)).tolist()
[1.0, 1.0]
)")
      .def_property_readonly("training", &Module::is_training, "True in training mode; train() and eval() set it.")
      .def("to", convert, py::arg("target") = py::none(), py::kw_only(), py::arg("dtype") = py::none(),
           py::arg("device") = py::none(),
           R"(Converts float parameters and buffers to a dtype, or moves everything to a device. The tensors keep their
identity; gradients are dropped.

>>> import anello
>>> anello.nn.Linear(2, 3).to(anello.float64).weight.dtype
anello.float64
)")
      .def(
          "float", [](const py::object& self) { return convert(self, py::none(), float32, std::nullopt); },
          R"(to(anello.float32).

>>> import anello
>>> anello.nn.Linear(2, 3).double().float().weight.dtype
anello.float32
)")
      .def(
          "double", [](const py::object& self) { return convert(self, py::none(), float64, std::nullopt); },
          R"(to(anello.float64).

>>> import anello
>>> anello.nn.Linear(2, 3).double().weight.dtype
anello.float64
)")
      .def(
          "zero_grad", [](Module& m) { m.zero_grad(); }, R"(Makes every gradient None.

>>> import anello
>>> anello.nn.Linear(2, 3).zero_grad()
)")
      .def(
          "requires_grad_",
          [](const py::object& self, bool requires_grad) {
            self.cast<Module&>().requires_grad_(requires_grad);
            return self;
          },
          py::arg("requires_grad") = true, R"(Sets requires_grad of every parameter; returns the module.

>>> import anello
>>> anello.nn.Linear(2, 3).requires_grad_(False).weight.requires_grad
False
)");
}

void bind_states(BaseModuleClass& cls) {
  cls.def(
         "state_dict",
         [](const Module& m) {
           py::dict dict;
           for (const auto& [name, tensor] : m.state_dict()) dict[py::str(name)] = tensor;
           return dict;
         },
         R"(All parameters and persistent buffers by full name. The tensors are detached but share memory with the
module.

>>> import anello
>>> list(anello.nn.Linear(2, 3).state_dict())
['weight', 'bias']
)")
      .def(
          "load_state_dict",
          [](Module& m, const py::dict& state, bool strict) {
            const TensorMap tensors = tensors_from_dict("load_state_dict", state);
            const nn::LoadReport report = m.load_state_dict(tensors, strict);
            return py::module_::import("anello._state").attr("LoadReport")(report.missing, report.unexpected);
          },
          py::arg("state_dict"), py::arg("strict") = true,
          R"(Copies values in place, converting between float dtypes. Everything is checked first: one error lists all
that is missing, unexpected or does not fit, and nothing has changed then. With strict=False missing and unexpected
names are returned instead.

>>> import anello
>>> a, b = anello.nn.Linear(2, 3), anello.nn.Linear(2, 3)
>>> b.load_state_dict(a.state_dict())
LoadReport(missing_keys=[], unexpected_keys=[])
>>> (a.weight == b.weight).all().item()
True
)");
}

constexpr const char* kModuleDoc =
    R"(The base of all layers and networks. Derive from it, call super().__init__(), assign parameters (nn.Parameter)
and sub-modules as attributes, and write forward(); calling the module calls forward().

>>> import anello
>>> from anello import nn
>>> class Net(nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.fc1 = nn.Linear(4, 8)
...         self.fc2 = nn.Linear(8, 2)
...     def forward(self, x):
...         return self.fc2(anello.relu(self.fc1(x)))
>>> net = Net()
>>> net(anello.ones(3, 4)).shape
(3, 2)
>>> net
Net(
  (fc1): Linear(in_features=4, out_features=8, bias=True)  [40]
  (fc2): Linear(in_features=8, out_features=2, bias=True)  [18]
)  [58]
Parameters: 58
)";

}  // namespace

void bind_module_class(py::module_& m) {
  BaseModuleClass cls(m, "Module", kModuleDoc, py::dynamic_attr(), py::custom_type_setup(set_module_slots));
  cls.def(py::init([] { return std::make_unique<PyModule<Module>>(false); },
                   [] { return std::make_unique<PyModule<Module>>(true); }));
  cls.def(
      "forward",
      [](Module& self, const Tensor& x) {
        const GilRelease release;
        return self.forward(x);
      },
      py::arg("input"), "The computation: override it, with the arguments you want.");
  cls.def("__call__", [](const py::object& self, const py::args& args, const py::kwargs& kwargs) {
    return self.attr("forward")(*args, **kwargs);
  });
  cls.def("__repr__", [](const Module& module) { return module.repr(); });
  cls.def("__reduce__", [](const Module& module) {
    fail<DTypeError>(module.class_name(),
                     "a module cannot be copied or pickled. Hint: build another one and "
                     "load_state_dict(model.state_dict()); anello.save() writes a state_dict to a file.");
  });
  cls.def(
      "extra_repr", [](const Module& module) { return module.extra_repr(); },
      "What repr() shows between the parentheses: override it.");
  bind_module_attributes(cls);
  bind_walking(cls);
  bind_mode(cls);
  bind_states(cls);
  find_who_visits(cls);
}

}  // namespace anello::python
