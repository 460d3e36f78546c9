// Activation layers and losses as Python classes.
// Main entry: bind_activation_layers(), bind_loss_layers().
#include "nn_module.h"

#include <anello/layers/activation.h>
#include <anello/layers/loss.h>

namespace anello::python {
namespace {

using nn::Module;

auto no_args() { return std::tuple<>(); }
auto number_arg(double value) { return std::make_tuple(value); }
auto word_arg(const std::string& word) { return std::make_tuple(word); }
auto dim_arg(int64_t dim) { return std::make_tuple(dim); }
auto reduction_arg(const std::string& reduction) { return std::make_tuple(reduction_from_name(reduction)); }

auto cross_entropy_args(const std::optional<Tensor>& weight, int64_t ignore_index, const std::string& reduction,
                        double label_smoothing) {
  return std::make_tuple(
      CrossEntropyOptions{weight.value_or(Tensor()), ignore_index, label_smoothing, reduction_from_name(reduction)});
}
auto nll_args(const std::optional<Tensor>& weight, int64_t ignore_index, const std::string& reduction) {
  return cross_entropy_args(weight, ignore_index, reduction, 0);
}

/// The layer's forward takes two tensors instead of one.
template <class T>
void takes_target(ModuleClass<T, nn::Loss>&& cls) {
  cls.attr("forward") = py::cpp_function(
      [](T& self, const Tensor& x, const Tensor& target) {
        const GilRelease release;
        return self.T::forward(x, target);
      },
      py::name("forward"), py::is_method(cls), py::arg("input"), py::arg("target"), "The loss of input for target.");
}

}  // namespace

void bind_activation_layers(py::module_& m) {
  bind_layer<nn::ReLU, Module>(m, "ReLU", R"(max(x, 0); NaN stays NaN.

>>> import anello
>>> anello.nn.ReLU()(anello.tensor([-1.0, 2.0])).tolist()
[0.0, 2.0]
)",
                               no_args);
  bind_layer<nn::LeakyReLU, Module>(m, "LeakyReLU", R"(x above 0, negative_slope * x below.

>>> import anello
>>> anello.nn.LeakyReLU(0.5)(anello.tensor([-2.0])).tolist()
[-1.0]
)",
                                    number_arg, py::arg("negative_slope") = 0.01);
  bind_layer<nn::ELU, Module>(m, "ELU", R"(x above 0, alpha (exp(x) - 1) below (arXiv 1511.07289).

>>> import anello
>>> anello.nn.ELU()(anello.tensor([0.0, 2.0])).tolist()
[0.0, 2.0]
)",
                              number_arg, py::arg("alpha") = 1.0);
  bind_layer<nn::GELU, Module>(m, "GELU", R"(x Phi(x), exact ('none') or by its tanh form ('tanh') (arXiv 1606.08415).

>>> import anello
>>> anello.nn.GELU()(anello.tensor([0.0])).tolist()
[0.0]
)",
                               word_arg, py::kw_only(), py::arg("approximate") = "none");
  bind_layer<nn::SiLU, Module>(m, "SiLU", R"(x sigmoid(x) (arXiv 1702.03118).

>>> import anello
>>> anello.nn.SiLU()(anello.tensor([0.0])).tolist()
[0.0]
)",
                               no_args);
  bind_layer<nn::Sigmoid, Module>(m, "Sigmoid", R"(1 / (1 + exp(-x)).

>>> import anello
>>> anello.nn.Sigmoid()(anello.tensor([0.0])).tolist()
[0.5]
)",
                                  no_args);
  bind_layer<nn::Tanh, Module>(m, "Tanh", R"(The hyperbolic tangent.

>>> import anello
>>> anello.nn.Tanh()(anello.tensor([0.0])).tolist()
[0.0]
)",
                               no_args);
  bind_layer<nn::Softplus, Module>(m, "Softplus", R"(log(1 + exp(beta x)) / beta, without overflow.

>>> import anello
>>> anello.nn.Softplus()(anello.tensor([1000.0])).tolist()
[1000.0]
)",
                                   number_arg, py::arg("beta") = 1.0);
  bind_layer<nn::Softmax, Module>(m, "Softmax", R"(exp(x) / sum(exp(x)) along dim.

>>> import anello
>>> anello.nn.Softmax(-1)(anello.zeros(2)).tolist()
[0.5, 0.5]
)",
                                  dim_arg, py::arg("dim"));
  bind_layer<nn::LogSoftmax, Module>(m, "LogSoftmax", R"(x - log(sum(exp(x))) along dim.

>>> import anello
>>> anello.nn.LogSoftmax(-1)(anello.zeros(1)).tolist()
[0.0]
)",
                                     dim_arg, py::arg("dim"));
}

void bind_loss_layers(py::module_& m) {
  py::class_<nn::Loss, Module, py::smart_holder>(m, "_Loss",
                                                 "The base of the losses: modules called with (input, target).");
  takes_target(bind_layer<nn::CrossEntropyLoss, nn::Loss>(
      m, "CrossEntropyLoss",
      R"(Cross-entropy of logits [N, classes] and target [N] labels or [N, classes] probabilities; see
nn.functional.cross_entropy(). The class weights are a buffer, "weight".

>>> import anello
>>> loss = anello.nn.CrossEntropyLoss(label_smoothing=0.1)
>>> round(loss(anello.zeros(4, 2), anello.tensor([0, 1, 0, 1])).item(), 4)
0.6931
)",
      cross_entropy_args, py::arg("weight") = py::none(), py::kw_only(), py::arg("ignore_index") = -100,
      py::arg("reduction") = "mean", py::arg("label_smoothing") = 0.0));
  takes_target(bind_layer<nn::NLLLoss, nn::Loss>(m, "NLLLoss",
                                                 R"(CrossEntropyLoss of log-probabilities instead of logits.

>>> import anello
>>> anello.nn.NLLLoss()(anello.tensor([[-1.0, -2.0]]), anello.tensor([1])).item()
2.0
)",
                                                 nll_args, py::arg("weight") = py::none(), py::kw_only(),
                                                 py::arg("ignore_index") = -100, py::arg("reduction") = "mean"));
  takes_target(bind_layer<nn::MSELoss, nn::Loss>(
      m, "MSELoss", R"((input - target)^2: its mean, its sum, or each (reduction 'mean', 'sum', 'none').

>>> import anello
>>> anello.nn.MSELoss()(anello.tensor([1.0]), anello.tensor([3.0])).item()
4.0
)",
      reduction_arg, py::kw_only(), py::arg("reduction") = "mean"));
  takes_target(bind_layer<nn::L1Loss, nn::Loss>(
      m, "L1Loss", R"(|input - target|: its mean, its sum, or each (reduction 'mean', 'sum', 'none').

>>> import anello
>>> anello.nn.L1Loss()(anello.tensor([1.0]), anello.tensor([3.0])).item()
2.0
)",
      reduction_arg, py::kw_only(), py::arg("reduction") = "mean"));
  takes_target(bind_layer<nn::BCEWithLogitsLoss, nn::Loss>(
      m, "BCEWithLogitsLoss", R"(Cross-entropy of independent yes/no questions: input are logits, target probabilities.

>>> import anello
>>> round(anello.nn.BCEWithLogitsLoss()(anello.zeros(1), anello.ones(1)).item(), 4)
0.6931
)",
      reduction_arg, py::kw_only(), py::arg("reduction") = "mean"));
}

}  // namespace anello::python
