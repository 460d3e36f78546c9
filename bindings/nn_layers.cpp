// Layers with parameters, pooling, dropout and shape layers as Python classes.
// Main entry: bind_basic_layers().
#include "nn_module.h"

#include <anello/layers/conv.h>
#include <anello/layers/dropout.h>
#include <anello/layers/linear.h>
#include <anello/layers/norm.h>
#include <anello/layers/pool.h>

namespace anello::python {
namespace {

using nn::Module;
using MaybePair = std::optional<PairArg>;

nn::IntPair pair(const PairArg& p) { return nn::IntPair(p.values); }
std::optional<nn::IntPair> pair(const MaybePair& p) { return p ? std::optional(pair(*p)) : std::nullopt; }
const PairArg kOne{{1, 1}}, kZero{{0, 0}};

auto linear_args(int64_t in_features, int64_t out_features, bool bias) {
  return std::make_tuple(in_features, out_features, bias);
}

auto conv2d_args(int64_t in_channels, int64_t out_channels, PairArg kernel_size, PairArg stride,
                 const py::object& padding, PairArg dilation, int64_t groups, bool bias,
                 const std::string& padding_mode) {
  nn::Conv2dOptions options;
  options.stride = pair(stride);
  py::detail::make_caster<PairArg> sizes;
  if (sizes.load(padding, false))
    options.padding = nn::Padding(py::detail::cast_op<PairArg>(sizes).values);
  else
    options.padding =
        nn::Padding(std::string_view(text_of("Conv2d", "padding, where it is no integer or pair,", padding)));
  options.dilation = pair(dilation);
  options.groups = groups;
  options.bias = bias;
  options.padding_mode = padding_mode;
  return std::make_tuple(in_channels, out_channels, pair(kernel_size), options);
}

auto batch_norm_args(int64_t num_features, double eps, std::optional<double> momentum, bool affine,
                     bool track_running_stats) {
  return std::make_tuple(num_features, nn::BatchNormOptions{eps, momentum, affine, track_running_stats});
}

auto max_pool2d_args(PairArg kernel_size, const MaybePair& stride, PairArg padding, bool ceil_mode) {
  return std::make_tuple(pair(kernel_size), nn::MaxPool2dOptions{pair(stride), pair(padding), ceil_mode});
}
auto max_pool1d_args(int64_t kernel_size, std::optional<int64_t> stride, int64_t padding, bool ceil_mode) {
  return std::make_tuple(kernel_size, nn::MaxPool1dOptions{stride, padding, ceil_mode});
}
auto avg_pool2d_args(PairArg kernel_size, const MaybePair& stride, PairArg padding, bool ceil_mode,
                     bool count_include_pad) {
  return std::make_tuple(pair(kernel_size),
                         nn::AvgPool2dOptions{pair(stride), pair(padding), ceil_mode, count_include_pad});
}
auto dropout_args(double p) { return std::make_tuple(p); }
auto flatten_args(int64_t start_dim, int64_t end_dim) { return std::make_tuple(start_dim, end_dim); }
auto no_args() { return std::tuple<>(); }

void bind_norms(py::module_& m) {
  py::class_<nn::BatchNorm, Module, py::smart_holder>(m, "_BatchNorm", "The base of the batch normalisation layers.")
      .def("reset_running_stats", &nn::BatchNorm::reset_running_stats, "Running mean 0, variance 1, count 0.");
  bind_layer<nn::BatchNorm2d, nn::BatchNorm>(
      m, "BatchNorm2d",
      R"(Normalises each channel of input [N, H, W, num_features] over all other dims (arXiv 1502.03167). Training
uses the batch's statistics and updates running_mean and running_var as (1 - momentum) running + momentum batch, with
the unbiased variance (momentum=None averages over all batches); evaluation uses the running ones. Raises ShapeError
in training with one value a channel.

>>> import anello
>>> bn = anello.nn.BatchNorm2d(3)
>>> bn(anello.randn(2, 4, 4, 3)).shape
(2, 4, 4, 3)
)",
      batch_norm_args, py::arg("num_features"), py::arg("eps") = 1e-5, py::arg("momentum") = 0.1,
      py::arg("affine") = true, py::arg("track_running_stats") = true);
  bind_layer<nn::BatchNorm1d, nn::BatchNorm>(
      m, "BatchNorm1d", R"(BatchNorm2d for input [N, num_features] or [N, L, num_features].

>>> import anello
>>> anello.nn.BatchNorm1d(3)(anello.randn(8, 3)).shape
(8, 3)
)",
      batch_norm_args, py::arg("num_features"), py::arg("eps") = 1e-5, py::arg("momentum") = 0.1,
      py::arg("affine") = true, py::arg("track_running_stats") = true);
}

void bind_pools(py::module_& m) {
  bind_layer<nn::MaxPool2d, Module>(
      m, "MaxPool2d",
      R"(The largest value of each window: [N, H, W, C] -> [N, H', W', C]. stride defaults to the kernel's size;
padding (at most half the kernel) is -inf; NaN wins; ceil_mode keeps the last partial window.

>>> import anello
>>> anello.nn.MaxPool2d(2)(anello.zeros(1, 8, 8, 3)).shape
(1, 4, 4, 3)
)",
      max_pool2d_args, py::arg("kernel_size"), py::arg("stride") = py::none(), py::arg("padding") = kZero,
      py::kw_only(), py::arg("ceil_mode") = false);
  bind_layer<nn::MaxPool1d, Module>(m, "MaxPool1d",
                                    R"(The largest value of each window: [N, L, C] -> [N, L', C]; see MaxPool2d.

>>> import anello
>>> anello.nn.MaxPool1d(2)(anello.zeros(1, 8, 3)).shape
(1, 4, 3)
)",
                                    max_pool1d_args, py::arg("kernel_size"), py::arg("stride") = py::none(),
                                    py::arg("padding") = 0, py::kw_only(), py::arg("ceil_mode") = false);
  bind_layer<nn::AvgPool2d, Module>(
      m, "AvgPool2d",
      R"(The mean of each window: [N, H, W, C] -> [N, H', W', C]. Padding counts as zeros in the mean when
count_include_pad.

>>> import anello
>>> anello.nn.AvgPool2d(2)(anello.zeros(1, 8, 8, 3)).shape
(1, 4, 4, 3)
)",
      avg_pool2d_args, py::arg("kernel_size"), py::arg("stride") = py::none(), py::arg("padding") = kZero,
      py::arg("ceil_mode") = false, py::arg("count_include_pad") = true);
  bind_layer<nn::GlobalAvgPool2d, Module>(m, "GlobalAvgPool2d", R"(The mean over all positions: [N, H, W, C] -> [N, C].

>>> import anello
>>> anello.nn.GlobalAvgPool2d()(anello.zeros(1, 8, 8, 3)).shape
(1, 3)
)",
                                          no_args);
}

}  // namespace

void bind_basic_layers(py::module_& m) {
  bind_layer<nn::Linear, Module>(
      m, "Linear",
      R"(y = x weight^T + bias over the last dim: [..., in_features] -> [..., out_features]. weight [out_features,
in_features] and bias [out_features] (None with bias=False) start uniform in +-1 / sqrt(in_features).

>>> import anello
>>> anello.nn.Linear(4, 2)(anello.ones(3, 4)).shape
(3, 2)
)",
      linear_args, py::arg("in_features"), py::arg("out_features"), py::arg("bias") = true)
      .def("reset_parameters", &nn::Linear::reset_parameters, "Draws new values for weight and bias.");
  bind_layer<nn::Conv2d, Module>(
      m, "Conv2d",
      R"(2-d convolution, channels last: [N, H, W, in_channels] -> [N, H', W', out_channels], H' = (H + 2 padding -
dilation (kernel - 1) - 1) // stride + 1. weight [out_channels, kh, kw, in_channels / groups] and bias start uniform
in +-1 / sqrt(kh kw in_channels / groups). padding is a size, a pair, 'same' or 'valid'; padding_mode 'zeros',
'reflect', 'replicate' or 'circular'.

>>> import anello
>>> anello.nn.Conv2d(3, 16, 3, padding=1)(anello.zeros(1, 8, 8, 3)).shape
(1, 8, 8, 16)
)",
      conv2d_args, py::arg("in_channels"), py::arg("out_channels"), py::arg("kernel_size"), py::arg("stride") = kOne,
      py::arg("padding") = 0, py::arg("dilation") = kOne, py::arg("groups") = 1, py::arg("bias") = true,
      py::arg("padding_mode") = "zeros")
      .def("reset_parameters", &nn::Conv2d::reset_parameters, "Draws new values for weight and bias.");
  bind_norms(m);
  bind_pools(m);
  bind_layer<nn::Dropout, Module>(
      m, "Dropout",
      R"(In training zeroes elements with probability p and scales the rest by 1 / (1 - p); the identity in evaluation.

>>> import anello
>>> anello.nn.Dropout(0.5).eval()(anello.ones(2)).tolist()
[1.0, 1.0]
)",
      dropout_args, py::arg("p") = 0.5);
  bind_layer<nn::Flatten, Module>(
      m, "Flatten",
      R"(Joins the dims from start_dim to end_dim into one. Images are channels last, so [N, H, W, C] becomes [N, H W
C]: another order of features than that of frameworks with [N, C, H, W].

>>> import anello
>>> anello.nn.Flatten()(anello.zeros(2, 4, 4, 3)).shape
(2, 48)
)",
      flatten_args, py::arg("start_dim") = 1, py::arg("end_dim") = -1);
  bind_layer<nn::Identity, Module>(m, "Identity", R"(Returns its input.

>>> import anello
>>> anello.nn.Identity()(anello.ones(1)).tolist()
[1.0]
)",
                                   no_args);
}

}  // namespace anello::python
