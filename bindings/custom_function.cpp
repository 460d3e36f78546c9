// anello.autograd.Function: differentiable functions written in Python.
// Main entry: bind_custom_function(), which defines Function.apply's engine, apply_function(cls, *args).
#include "bindings.h"
#include "hooks.h"

#include <anello/autograd/node.h>

#include <mutex>
#include <set>

namespace anello::python {
namespace {

/// `ctx`: what forward() hands to backward(). Python code may set attributes of its own on it.
struct FunctionContext {
  std::vector<Tensor> to_save;  ///< set by save_for_backward()
  std::vector<Tensor> saved;    ///< filled while backward() runs
  std::vector<const TensorImpl*> without_gradient;
  py::tuple needs_input_grad;
  bool materialize = true;
};

/// A node's name lives as long as the process; there is one string a class name.
const char* interned(const std::string& name) {
  static std::mutex mutex;
  static auto* const names = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return names->insert(name).first->c_str();
}

std::vector<Tensor> tensors_of(const py::args& args) {
  std::vector<Tensor> tensors;
  for (const py::handle item : args) {
    check<DTypeError>(item.is_none() || is_tensor(item.ptr()), "save_for_backward", "takes tensors and None, not ",
                      Py_TYPE(item.ptr())->tp_name, ". Hint: keep other things as attributes of ctx.");
    tensors.push_back(item.is_none() ? Tensor() : tensor_of(item.ptr()));
  }
  return tensors;
}

/// The recorded half of one application: calls the class's backward() and hands its results to the engine.
class Application {
 public:
  Application(const py::object& cls, const py::object& ctx, const py::args& args)
      : cls_(cls), ctx_(ctx), argument_count_(args.size()) {
    for (size_t i = 0; i < args.size(); ++i)
      if (is_tensor(py::object(args[i]).ptr())) places_.push_back(i);
  }

  /// Where each element of forward()'s result is among the recorded outputs; -1: it is no tensor, or has no gradient.
  std::vector<int> outputs;

  /// Tells the garbage collector that ctx hangs on the node (one reference, so that it can count).
  void attach(const Ref<Node>& node) {
    attached_ctx_ = std::make_unique<Attached>(node.get(), ctx_.get());
    ctx_ = SharedObject();
  }

  void backward(Backward& bw) const {
    const GilAcquire gil;
    const py::object ctx = attached_ctx_ ? attached_ctx_->get() : ctx_.get();
    auto& state = ctx.cast<FunctionContext&>();
    for (int i = 0; i < bw.saved_count(); ++i) state.saved.push_back(bw.saved(i));
    struct Forget {  // what is unpacked lives for the call only
      FunctionContext& state;
      ~Forget() { state.saved.clear(); }
    } forget{state};
    py::list grads;
    for (int place : outputs) {
      const bool given = place >= 0 && (state.materialize || bw.has_grad(place));
      grads.append(given ? py::cast(bw.grad(place)) : py::none());
    }
    give(bw, py::object(cls_.get().attr("backward")(ctx, *grads)));
  }

 private:
  void give(Backward& bw, const py::object& result) const {
    const py::tuple list =
        py::isinstance<py::tuple>(result) ? py::reinterpret_borrow<py::tuple>(result) : py::make_tuple(result);
    const auto name = cls_.get().attr("__name__").cast<std::string>();
    check(list.size() == argument_count_, "backward of " + name, "returned ", list.size(), " gradients for ",
          argument_count_, " arguments of forward. Hint: return one an argument, None where there is none.");
    size_t input = 0;
    for (size_t i = 0; i < argument_count_; ++i) {
      const py::object grad = list[i];
      const bool takes = input < places_.size() && places_[input] == i;
      check<DTypeError>(grad.is_none() || is_tensor(grad.ptr()), "backward of " + name, "gradient ", i, " is a ",
                        Py_TYPE(grad.ptr())->tp_name, ", not a tensor or None");
      check(takes || grad.is_none(), "backward of " + name, "argument ", i,
            " is no tensor and cannot have a gradient. Hint: return None for it.");
      if (takes && !grad.is_none()) {
        const GilRelease release;
        bw.give(static_cast<int>(input), tensor_of(grad.ptr()));
      }
      if (takes) ++input;
    }
  }

  SharedObject cls_, ctx_;
  std::unique_ptr<Attached> attached_ctx_;
  size_t argument_count_;
  std::vector<size_t> places_;  ///< of the tensors among the arguments
};

py::tuple needed_inputs(const py::args& args) {
  py::tuple needs(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    const py::object argument = args[i];
    needs[i] = py::bool_(is_grad_enabled() && is_tensor(argument.ptr()) && tensor_of(argument.ptr()).requires_grad());
  }
  return needs;
}

py::object run_forward(const py::object& cls, const py::object& ctx, const py::args& args) {
  const NoGradGuard no_grad;
  if (py::getattr(cls, "setup_context", py::none()).is_none()) return cls.attr("forward")(ctx, *args);
  py::object output = cls.attr("forward")(*args);
  cls.attr("setup_context")(ctx, args, output);
  return output;
}

py::object apply_function(const py::object& cls, const py::args& args) {
  const py::object ctx = py::cast(std::make_shared<FunctionContext>());
  auto& state = ctx.cast<FunctionContext&>();
  state.needs_input_grad = needed_inputs(args);
  const py::object result = run_forward(cls, ctx, args);

  const bool several = py::isinstance<py::tuple>(result);
  py::list elements = several ? py::list(result) : py::list(py::make_tuple(result));
  auto application = std::make_shared<Application>(cls, ctx, args);
  std::vector<Tensor> inputs, outputs;
  for (const py::handle argument : args)
    if (is_tensor(argument.ptr())) inputs.push_back(tensor_of(argument.ptr()));
  for (size_t i = 0; i < elements.size(); ++i) {
    const py::object element = elements[i];
    int place = -1;
    if (is_tensor(element.ptr())) {
      Tensor output = tensor_of(element.ptr());
      const auto is_output = [&](const Tensor& t) { return t.defined() && t.is(output); };
      const bool is_input = std::any_of(inputs.begin(), inputs.end(), is_output);
      const auto& excluded = state.without_gradient;
      const bool has_gradient = std::find(excluded.begin(), excluded.end(), &output.impl()) == excluded.end();
      // What forward returned as it came in (or took from elsewhere) keeps its own history; the result is a tensor
      // beside it.
      if (is_input || output.requires_grad()) {
        const Tensor fresh = output.detach();
        for (Tensor& saved : state.to_save)
          if (!is_input && is_output(saved)) saved = fresh;
        output = fresh;
        elements[i] = output;
      }
      if (has_gradient) {
        place = static_cast<int>(outputs.size());
        outputs.push_back(output);
      }
    }
    application->outputs.push_back(place);
  }
  const char* name = interned(cls.attr("__name__").cast<std::string>());
  const std::vector<Tensor> recorded = record_all(name, pointers(inputs), pointers(state.to_save), outputs,
                                                  [application](Backward& bw) { application->backward(bw); });
  state.to_save.clear();
  for (const Tensor& output : recorded) {
    if (const Ref<Node> node = grad_fn(output)) {
      application->attach(node);
      break;
    }
  }
  return several ? py::object(py::tuple(elements)) : py::object(elements[0]);
}

}  // namespace

void bind_custom_function(py::module_& m) {
  py::class_<FunctionContext, std::shared_ptr<FunctionContext>>(
      m, "FunctionContext", py::dynamic_attr(),
      "What a Function's forward() hands to its backward(); attributes can be set on it.")
      .def(
          "save_for_backward", [](FunctionContext& ctx, const py::args& tensors) { ctx.to_save = tensors_of(tensors); },
          "Keeps tensors (or None) for backward(), where they are saved_tensors; in-place changes in between are "
          "noticed.")
      .def_property_readonly(
          "saved_tensors",
          [](const FunctionContext& ctx) {
            return py::cast(ctx.saved.empty() ? ctx.to_save : ctx.saved).cast<py::tuple>();
          },
          "What save_for_backward() kept, as a tuple.")
      .def_readonly("needs_input_grad", &FunctionContext::needs_input_grad,
                    "One bool an argument: whether its gradient is wanted.")
      .def(
          "mark_non_differentiable",
          [](FunctionContext& ctx, const py::args& tensors) {
            for (const Tensor& t : tensors_of(tensors))
              if (t.defined()) ctx.without_gradient.push_back(&t.impl());
          },
          "Says that these outputs have no gradient (integer outputs never have).")
      .def(
          "set_materialize_grads", [](FunctionContext& ctx, bool value) { ctx.materialize = value; }, py::arg("value"),
          "False: backward() gets None instead of zeros for an output that received no gradient.");
  m.def("apply_function", apply_function, py::arg("cls"), "Runs a Function's forward and records its backward.");
}

}  // namespace anello::python
