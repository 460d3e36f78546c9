// Containers of modules as Python classes, and the initialisers.
// Main entry: bind_containers(), bind_initialisers().
#include "nn_module.h"

#include <anello/layers/container.h>
#include <anello/layers/init.h>

namespace anello::python {
namespace {

using nn::Module;
using nn::ModuleList;
using nn::Sequential;
using ModulePtr = std::shared_ptr<Module>;
using Named = std::vector<std::pair<std::string, ModulePtr>>;

ModulePtr module_from(const std::string& op, py::handle module) {
  check<TypeError>(py::isinstance<Module>(module), op, "takes modules, got ", told(module), '.');
  return module.cast<ModulePtr>();
}

void append_all(ModuleList& list, const py::args& modules) {
  for (const py::handle module : modules) list.append(module_from(list.class_name(), module));
}

/// The modules of an iterable.
py::args all_of(const std::string& op, const py::object& modules) {
  check<TypeError>(is_iterable(modules), op, "takes modules, or one list of them, got ", told(modules), '.');
  return py::args(py::tuple(modules));
}

/// Sequential(a, b), Sequential([a, b]) or Sequential({"name": a}).
std::unique_ptr<PyModule<Sequential>> make_sequential(bool subclassed, const py::args& args) {
  auto made = std::make_unique<PyModule<Sequential>>(subclassed);
  if (args.size() == 1 && py::isinstance<py::dict>(args[0])) {
    for (const auto& [name, module] : py::reinterpret_borrow<py::dict>(args[0]))
      made->append(text_of("Sequential", "a name", name), module_from("Sequential", module));
  } else {
    const bool list = args.size() == 1 && !py::isinstance<Module>(args[0]);
    append_all(*made, list ? all_of("Sequential", args[0]) : args);
  }
  return made;
}

std::unique_ptr<PyModule<ModuleList>> make_list(bool subclassed, const py::object& modules) {
  auto made = std::make_unique<PyModule<ModuleList>>(subclassed);
  if (!modules.is_none()) append_all(*made, all_of("ModuleList", modules));
  return made;
}

/// The module at a place, or those of a slice as another container: a Sequential keeps their names.
py::object item(const ModuleList& list, const py::object& index) {
  if (!PySlice_Check(index.ptr())) {
    check<TypeError>(PyIndex_Check(index.ptr()) != 0, list.class_name(), "an index is an integer or a slice, got ",
                     told(index), '.');
    return py::cast(list.at(index.cast<int64_t>()));
  }
  size_t start = 0, stop = 0, step = 0, count = 0;
  if (!index.cast<py::slice>().compute(static_cast<size_t>(list.size()), &start, &stop, &step, &count))
    throw py::error_already_set();
  const Named all = list.named_children();
  const bool sequential = dynamic_cast<const Sequential*>(&list) != nullptr;
  std::shared_ptr<ModuleList> picked;
  if (sequential)
    picked = std::make_shared<PyModule<Sequential>>(false);
  else
    picked = std::make_shared<PyModule<ModuleList>>(false);
  for (size_t i = 0; i < count; ++i) {  // the step may be negative, and wraps
    const auto& [name, module] = all[start + i * step];
    sequential ? picked->append(name, module) : picked->append(module);
  }
  return py::cast(picked);
}

}  // namespace

void bind_containers(py::module_& m) {
  ModuleClass<ModuleList, Module> list(m, "ModuleList", R"(Modules in a list, registered under '0', '1', ...

>>> import anello
>>> from anello import nn
>>> layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
>>> len(layers), layers[-1] is layers[1]
(2, True)
)",
                                       py::dynamic_attr(), py::custom_type_setup(set_module_slots));
  list.def(py::init([](const py::object& modules) { return make_list(false, modules); },
                    [](const py::object& modules) { return make_list(true, modules); }),
           py::arg("modules") = py::none())
      .def(
          "append",
          [](const py::object& self, const ModulePtr& module) {
            self.cast<ModuleList&>().append(module);
            return self;
          },
          py::arg("module"), "Adds a module at the end; returns the list.")
      .def("__len__", &ModuleList::size)
      .def("__getitem__", item, py::arg("index"))
      .def("__setitem__", &ModuleList::set, py::arg("index"), py::arg("module"))
      .def("__iter__", [](const ModuleList& self) {
        py::list modules;
        for (int64_t i = 0; i < self.size(); ++i) modules.append(self.at(i));
        return py::iter(modules);
      });
  ModuleClass<Sequential, ModuleList> sequential(
      m, "Sequential",
      R"(Calls its modules one after the other: Sequential(a, b), Sequential([a, b]), or Sequential({'name': a}).

>>> import anello
>>> from anello import nn
>>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
>>> net(anello.ones(3, 4)).shape
(3, 2)
)",
      py::dynamic_attr(), py::custom_type_setup(set_module_slots));
  sequential
      .def(py::init([](const py::args& modules) { return make_sequential(false, modules); },
                    [](const py::args& modules) { return make_sequential(true, modules); }))
      .def("forward", &forward_of<Sequential>, py::arg("input"), "Calls the modules one after the other.");
}

void bind_initialisers(py::module_& m) {
  namespace init = nn::init;
  const auto returned = [](const py::object& tensor, const auto& f) {
    f(tensor.cast<Tensor>());
    return tensor;
  };
  m.def(
      "uniform_",
      [=](const py::object& t, double a, double b) {
        return returned(t, [&](const Tensor& x) { init::uniform_(x, a, b); });
      },
      py::arg("tensor"), py::arg("a") = 0.0, py::arg("b") = 1.0,
      R"(Draws from the uniform distribution over [a, b), in place; returns the tensor.

>>> import anello
>>> anello.nn.init.uniform_(anello.zeros(2), 3, 3).tolist()
[3.0, 3.0]
)");
  m.def(
      "normal_",
      [=](const py::object& t, double mean, double std) {
        return returned(t, [&](const Tensor& x) { init::normal_(x, mean, std); });
      },
      py::arg("tensor"), py::arg("mean") = 0.0, py::arg("std") = 1.0,
      R"(Draws from the normal distribution, in place; returns the tensor.

>>> import anello
>>> anello.nn.init.normal_(anello.zeros(2), mean=3, std=0).tolist()
[3.0, 3.0]
)");
  m.def(
      "constant_",
      [=](const py::object& t, double val) { return returned(t, [&](const Tensor& x) { init::constant_(x, val); }); },
      py::arg("tensor"), py::arg("val"), R"(Sets every element, in place; returns the tensor.

>>> import anello
>>> anello.nn.init.constant_(anello.zeros(2), 4).tolist()
[4.0, 4.0]
)");
  m.def(
      "zeros_", [=](const py::object& t) { return returned(t, init::zeros_); }, py::arg("tensor"),
      R"(Sets every element to 0, in place; returns the tensor.

>>> import anello
>>> anello.nn.init.zeros_(anello.ones(2)).tolist()
[0.0, 0.0]
)");
  m.def(
      "ones_", [=](const py::object& t) { return returned(t, init::ones_); }, py::arg("tensor"),
      R"(Sets every element to 1, in place; returns the tensor.

>>> import anello
>>> anello.nn.init.ones_(anello.zeros(2)).tolist()
[1.0, 1.0]
)");
  m.def(
      "eye_", [=](const py::object& t) { return returned(t, init::eye_); }, py::arg("tensor"),
      R"(Ones on the diagonal of a matrix, else zeros, in place; returns it.

>>> import anello
>>> anello.nn.init.eye_(anello.zeros(2, 2)).tolist()
[[1.0, 0.0], [0.0, 1.0]]
)");
  m.def(
      "dirac_",
      [=](const py::object& t, int64_t groups) {
        return returned(t, [&](const Tensor& x) { init::dirac_(x, groups); });
      },
      py::arg("tensor"), py::arg("groups") = 1,
      R"(Makes a convolution weight [out, kh, kw, in] pass its channels through, in place; returns it.

>>> import anello
>>> w = anello.nn.init.dirac_(anello.zeros(2, 3, 3, 2))
>>> w[:, 1, 1, :].tolist()
[[1.0, 0.0], [0.0, 1.0]]
)");
  const auto kaiming = [&](const char* name, void (*f)(const Tensor&, double, std::string_view, std::string_view),
                           const char* doc) {
    m.def(
        name,
        [=](const py::object& t, double a, const std::string& mode, const std::string& nonlinearity) {
          return returned(t, [&](const Tensor& x) { f(x, a, mode, nonlinearity); });
        },
        py::arg("tensor"), py::arg("a") = 0.0, py::arg("mode") = "fan_in", py::arg("nonlinearity") = "leaky_relu", doc);
  };
  kaiming(
      "kaiming_uniform_", init::kaiming_uniform_,
      R"(Uniform in +-gain sqrt(3 / fan), fan by mode 'fan_in' or 'fan_out' (arXiv 1502.01852), in place; returns the
tensor.

>>> import anello
>>> w = anello.nn.init.kaiming_uniform_(anello.zeros(8, 3, 3, 4), nonlinearity="relu")
>>> w.abs().max().item() <= (6 / 36) ** 0.5
True
)");
  kaiming("kaiming_normal_", init::kaiming_normal_,
          R"(Normal with standard deviation gain / sqrt(fan) (arXiv 1502.01852), in place; returns the tensor.

>>> import anello
>>> anello.nn.init.kaiming_normal_(anello.zeros(8, 4), mode="fan_out").shape
(8, 4)
)");
  const auto xavier = [&](const char* name, void (*f)(const Tensor&, double), const char* doc) {
    m.def(
        name, [=](const py::object& t, double gain) { return returned(t, [&](const Tensor& x) { f(x, gain); }); },
        py::arg("tensor"), py::arg("gain") = 1.0, doc);
  };
  xavier("xavier_uniform_", init::xavier_uniform_,
         R"(Uniform in +-gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010), in place; returns the tensor.

>>> import anello
>>> anello.nn.init.xavier_uniform_(anello.zeros(8, 4)).abs().max().item() <= 0.5 ** 0.5
True
)");
  xavier("xavier_normal_", init::xavier_normal_,
         R"(Normal with standard deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010), in place; returns
the tensor.

>>> import anello
>>> anello.nn.init.xavier_normal_(anello.zeros(8, 4)).shape
(8, 4)
)");
  m.def(
      "calculate_gain",
      [](const std::string& nonlinearity, std::optional<double> param) {
        return init::gain(nonlinearity, param.value_or(0.01));
      },
      py::arg("nonlinearity"), py::arg("param") = py::none(),
      R"(The factor that keeps a signal's variance through a function, as 'relu', 'tanh', 'linear'.

>>> import anello
>>> round(anello.nn.init.calculate_gain("relu"), 4)
1.4142
)");
}

}  // namespace anello::python
