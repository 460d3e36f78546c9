// Learning-rate schedules and weight averages as Python classes.
// Main entry: bind_schedules().
#include "optim.h"

#include "bindings.h"
#include "state.h"

#include <anello/layers/module.h>
#include <anello/optim/averaging.h>
#include <anello/optim/schedule.h>

namespace anello::python {
namespace {

using optim::Optimizer;
using optim::Schedule;
using optim::WeightAverage;
using KeepOptimizer = py::keep_alive<1, 2>;  // a schedule refers to its optimizer

template <class T>
using ScheduleClass = py::class_<T, Schedule, std::shared_ptr<T>>;

optim::Warmup warmup(int64_t steps, double start_factor) { return {steps, start_factor}; }

/// A function of Python as one of C++, held for as long as the schedule.
std::function<double(int64_t)> rate_function(const py::object& function) {
  check<TypeError>(PyCallable_Check(function.ptr()) != 0, "LambdaLR", "takes a function, or one a group, got ",
                   told(function), '.');
  return [held = SharedObject(function)](int64_t step) {
    const GilAcquire gil;
    return number_of("LambdaLR", "what the function gives", held.get()(step));
  };
}

std::vector<double> one_or_many(const py::object& value) {
  if (is_number(value.ptr())) return {to_scalar(value.ptr()).to_double()};
  check<TypeError>(is_iterable(value), "OneCycleLR", "max_lr is a number, or one a group, got ", told(value));
  std::vector<double> values;
  for (const py::handle item : py::iter(value)) values.push_back(number_of("OneCycleLR", "max_lr", item));
  return values;
}

void bind_base(py::module_& m) {
  py::class_<Schedule, std::shared_ptr<Schedule>>(
      m, "LRScheduler", "The base of the learning-rate schedules. Each is a formula of the step alone.")
      .def("step", &Schedule::step, "Goes one step on and sets 'lr' of every group.")
      .def("get_last_lr", &Schedule::last_lr, "The rate of each group now, as a list.")
      .def_property_readonly("step_count", &Schedule::step_count, "Steps so far.")
      .def_property_readonly("last_epoch", &Schedule::step_count, "Steps so far, by PyTorch's name.")
      .def(
          "state_dict", [](const Schedule& self) { return dict_from_state(self.state_dict()); },
          "The count and the base rates, for save_checkpoint().")
      .def(
          "load_state_dict",
          [](Schedule& self, const py::dict& state) {
            self.load_state_dict(state_from_dict("load_state_dict", state));
          },
          py::arg("state_dict"), "Takes over what state_dict() gave and sets the rates of that step.")
      .def("__repr__",
           [](const Schedule& self) { return concat(self.class_name(), "(step ", self.step_count(), ")"); });
}

void bind_decays(py::module_& m) {
  ScheduleClass<optim::CosineAnnealingLR>(
      m, "CosineAnnealingLR",
      R"(lr = eta_min + (base - eta_min) (1 + cos(pi t / T_max)) / 2 (arXiv 1608.03983, without restarts). With
warmup_steps, lr first rises linearly from warmup_factor times base.

>>> import anello
>>> sgd = anello.optim.SGD([anello.zeros(1, requires_grad=True)], lr=1.0)
>>> schedule = anello.optim.CosineAnnealingLR(sgd, T_max=2)
>>> schedule.step()
>>> schedule.get_last_lr()
[0.5]
)")
      .def(py::init([](Optimizer& optimizer, int64_t t_max, double eta_min, int64_t steps, double factor) {
             return std::make_shared<optim::CosineAnnealingLR>(optimizer, t_max, eta_min, warmup(steps, factor));
           }),
           py::arg("optimizer"), py::arg("T_max"), py::arg("eta_min") = 0.0, py::kw_only(), py::arg("warmup_steps") = 0,
           py::arg("warmup_factor") = 0.1, KeepOptimizer());
  ScheduleClass<optim::MultiStepLR>(m, "MultiStepLR", R"(lr = base gamma^(number of milestones that are at most t).

>>> import anello
>>> sgd = anello.optim.SGD([anello.zeros(1, requires_grad=True)], lr=100.0)
>>> schedule = anello.optim.MultiStepLR(sgd, [2], gamma=0.5)
>>> for _ in range(2): schedule.step()
>>> schedule.get_last_lr()
[50.0]
)")
      .def(py::init([](Optimizer& optimizer, const std::vector<int64_t>& milestones, double gamma, int64_t steps,
                       double factor) {
             return std::make_shared<optim::MultiStepLR>(optimizer, milestones, gamma, warmup(steps, factor));
           }),
           py::arg("optimizer"), py::arg("milestones"), py::arg("gamma") = 0.1, py::kw_only(),
           py::arg("warmup_steps") = 0, py::arg("warmup_factor") = 0.1, KeepOptimizer());
  ScheduleClass<optim::LinearLR>(
      m, "LinearLR", R"(lr goes from start_factor base to end_factor base over total_iters steps, and stays there.

>>> import anello
>>> sgd = anello.optim.SGD([anello.zeros(1, requires_grad=True)], lr=1.0)
>>> schedule = anello.optim.LinearLR(sgd, start_factor=1.0, end_factor=0.0, total_iters=4)
>>> schedule.step()
>>> schedule.get_last_lr()
[0.75]
)")
      .def(py::init([](Optimizer& optimizer, double start, double end, int64_t total, int64_t steps, double factor) {
             return std::make_shared<optim::LinearLR>(optimizer, start, end, total, warmup(steps, factor));
           }),
           py::arg("optimizer"), py::arg("start_factor") = 1.0 / 3, py::arg("end_factor") = 1.0,
           py::arg("total_iters") = 5, py::kw_only(), py::arg("warmup_steps") = 0, py::arg("warmup_factor") = 0.1,
           KeepOptimizer());
  ScheduleClass<optim::LambdaLR>(m, "LambdaLR",
                                 R"(lr = base f(t), with one function for all groups or a list of one a group.

>>> import anello
>>> sgd = anello.optim.SGD([anello.zeros(1, requires_grad=True)], lr=1.0)
>>> schedule = anello.optim.LambdaLR(sgd, lambda t: 0.5 ** t)
>>> schedule.step()
>>> schedule.get_last_lr()
[0.5]
)")
      .def(py::init([](Optimizer& optimizer, const py::object& functions, int64_t steps, double factor) {
             if (PyCallable_Check(functions.ptr()) != 0 || !is_iterable(functions))
               return std::make_shared<optim::LambdaLR>(optimizer, rate_function(functions), warmup(steps, factor));
             std::vector<std::function<double(int64_t)>> list;
             for (const py::handle f : functions) list.push_back(rate_function(py::reinterpret_borrow<py::object>(f)));
             return std::make_shared<optim::LambdaLR>(optimizer, std::move(list), warmup(steps, factor));
           }),
           py::arg("optimizer"), py::arg("lr_lambda"), py::kw_only(), py::arg("warmup_steps") = 0,
           py::arg("warmup_factor") = 0.1, KeepOptimizer());
}

std::shared_ptr<optim::OneCycleLR> make_one_cycle(Optimizer& optimizer, const py::object& max_lr,
                                                  std::optional<int64_t> total_steps, std::optional<int64_t> epochs,
                                                  std::optional<int64_t> steps_per_epoch, double pct_start,
                                                  const std::string& anneal_strategy, bool cycle_momentum,
                                                  double base_momentum, double max_momentum, double div_factor,
                                                  double final_div_factor) {
  check<ValueError>(total_steps || (epochs && steps_per_epoch), "OneCycleLR",
                    "give total_steps, or epochs and steps_per_epoch");
  const int64_t total = total_steps ? *total_steps : *epochs * *steps_per_epoch;
  return std::make_shared<optim::OneCycleLR>(
      optimizer, optim::OneCycleOptions{one_or_many(max_lr), total, pct_start, anneal_strategy, cycle_momentum,
                                        base_momentum, max_momentum, div_factor, final_div_factor});
}

void bind_one_cycle(py::module_& m) {
  ScheduleClass<optim::OneCycleLR>(
      m, "OneCycleLR",
      R"(From max_lr / div_factor up to max_lr (a number, or one a group) and down to almost nothing, over total_steps
steps (arXiv 1708.07120). The top is at step pct_start total_steps - 1. cycle_momentum lets momentum (Adam: beta1) go
the other way. A step beyond the end raises Error.

>>> import anello
>>> sgd = anello.optim.SGD([anello.zeros(1, requires_grad=True)], lr=0.1)
>>> schedule = anello.optim.OneCycleLR(sgd, max_lr=1.0, total_steps=10, cycle_momentum=False)
>>> round(schedule.get_last_lr()[0], 6)
0.04
)")
      .def(py::init(&make_one_cycle), py::arg("optimizer"), py::arg("max_lr"), py::arg("total_steps") = py::none(),
           py::arg("epochs") = py::none(), py::arg("steps_per_epoch") = py::none(), py::arg("pct_start") = 0.3,
           py::arg("anneal_strategy") = "cos", py::arg("cycle_momentum") = true, py::arg("base_momentum") = 0.85,
           py::arg("max_momentum") = 0.95, py::arg("div_factor") = 25.0, py::arg("final_div_factor") = 1e4,
           KeepOptimizer());
}

/// A module's parameters and buffers, or pairs of name and tensor.
WeightAverage::Named named_tensors(const py::object& source) {
  if (py::isinstance<nn::Module>(source)) {
    const auto& module = source.cast<nn::Module&>();
    WeightAverage::Named named = module.named_parameters();
    for (auto& buffer : module.named_buffers()) named.push_back(std::move(buffer));
    return named;
  }
  const char* kTakes = "takes a Module, or pairs of name and tensor, got ";
  check<TypeError>(is_iterable(source), "WeightAverage", kTakes, told(source), '.');
  WeightAverage::Named named;
  for (const py::handle item : py::iter(source)) {
    const bool sequence = py::isinstance<py::tuple>(item) || py::isinstance<py::list>(item);
    check<TypeError>(sequence && py::len(item) == 2, "WeightAverage", kTakes, told(item), " among them.");
    const py::tuple both(py::reinterpret_borrow<py::object>(item));
    const py::object tensor = both[1];
    check<TypeError>(is_tensor(tensor.ptr()), "WeightAverage", kTakes, told(tensor), " for a tensor.");
    named.emplace_back(text_of("WeightAverage", "a name", both[0]), tensor_of(tensor.ptr()));
  }
  return named;
}

void bind_average(py::module_& m) {
  py::class_<WeightAverage, std::shared_ptr<WeightAverage>>(
      m, "WeightAverage",
      R"(An average of weights over training: average = decay average + (1 - decay) value at every update(), or with
equal=True the plain mean (arXiv 1803.05407). warmup lets the first values fade sooner. `model`: a Module (its
parameters and buffers), or pairs of name and tensor. swap() exchanges averages and values: once to evaluate, again to
train on.

>>> import anello
>>> net = anello.nn.Linear(1, 1)
>>> average = anello.optim.WeightAverage(net, decay=0.9)
>>> average.update()
>>> average.update_count
1
)")
      .def(py::init([](const py::object& model, double decay, bool equal, bool warmup) {
             return std::make_shared<WeightAverage>(named_tensors(model),
                                                    optim::WeightAverageOptions{decay, equal, warmup});
           }),
           py::arg("model"), py::arg("decay") = 0.999, py::kw_only(), py::arg("equal") = false,
           py::arg("warmup") = false)
      .def("update", &WeightAverage::update, NoGil(), "Takes the present values in; call it after each optimizer step.")
      .def("swap", &WeightAverage::swap, NoGil(), "Exchanges averages and values in place.")
      .def("copy_to_values", &WeightAverage::copy_to_values, NoGil(), "Overwrites the values with the averages.")
      .def_property_readonly("update_count", &WeightAverage::update_count, "Updates so far.")
      .def_property_readonly(
          "averages",
          [](const WeightAverage& self) {
            py::dict dict;
            for (const auto& [name, tensor] : self.averages()) dict[py::str(name)] = tensor;
            return dict;
          },
          "The averages by name (shared memory).")
      .def(
          "state_dict", [](const WeightAverage& self) { return dict_from_state(self.state_dict()); },
          "Averages and count, for save_checkpoint().")
      .def(
          "load_state_dict",
          [](WeightAverage& self, const py::dict& state) {
            self.load_state_dict(state_from_dict("load_state_dict", state));
          },
          py::arg("state_dict"), "Takes over what state_dict() gave.");
}

}  // namespace

void bind_schedules(py::module_& m) {
  bind_base(m);
  bind_decays(m);
  bind_one_cycle(m);
  bind_average(m);
}

}  // namespace anello::python
