// Functions that networks are made of: linear algebra, convolution, pooling, normalisation, softmax, losses.
// Main entry: bind_network(), bind_losses(). Images are channels last: [N, H, W, C].
#include "bindings.h"

#include <anello/autograd/functions.h>

namespace anello::python {
namespace {

using MaybeTensor = std::optional<Tensor>;
using MaybePair = std::optional<PairArg>;

Tensor or_undefined(const MaybeTensor& tensor) { return tensor.value_or(Tensor()); }
Pair or_kernel(const MaybePair& stride) { return stride ? stride->values : Pair{0, 0}; }
const PairArg kOne{{1, 1}}, kZero{{0, 0}};

void bind_convolution(Definer& define) {
  define.function(
      "conv2d",
      [](const Tensor& x, const Tensor& weight, const MaybeTensor& bias, PairArg stride, PairArg padding,
         PairArg dilation, int64_t groups) {
        return conv2d(x, weight, or_undefined(bias), stride.values, padding.values, dilation.values, groups);
      },
      py::arg("input"), py::arg("weight"), py::arg("bias") = py::none(), py::arg("stride") = kOne,
      py::arg("padding") = kZero, py::arg("dilation") = kOne, py::arg("groups") = 1,
      R"(2-d convolution, channels last: input [N, H, W, C], weight [O, kh, kw, C / groups], bias [O] -> [N, H', W',
O] with H' = (H + 2 padding - dilation (kh - 1) - 1) // stride + 1. Raises ShapeError when sizes do not fit.

>>> import anello
>>> anello.conv2d(anello.zeros(1, 8, 8, 3), anello.zeros(16, 3, 3, 3), padding=1).shape
(1, 8, 8, 16)
)");
  define.function(
      "conv2d_input_grad",
      [](const Tensor& grad, const Tensor& weight, const Shape& shape, PairArg stride, PairArg padding,
         PairArg dilation, int64_t groups) {
        return conv2d_input_grad(grad, weight, shape, stride.values, padding.values, dilation.values, groups);
      },
      py::arg("grad"), py::arg("weight"), py::arg("input_shape"), py::arg("stride") = kOne, py::arg("padding") = kZero,
      py::arg("dilation") = kOne, py::arg("groups") = 1,
      R"(The adjoint of conv2d in its input: grad [N, H', W', O] -> [N, H, W, C] of input_shape.

>>> import anello
>>> anello.conv2d_input_grad(anello.zeros(1, 6, 6, 16), anello.zeros(16, 3, 3, 3), (1, 8, 8, 3)).shape
(1, 8, 8, 3)
)");
  define.function(
      "conv2d_weight_grad",
      [](const Tensor& grad, const Tensor& x, const Shape& shape, PairArg stride, PairArg padding, PairArg dilation,
         int64_t groups) {
        return conv2d_weight_grad(grad, x, shape, stride.values, padding.values, dilation.values, groups);
      },
      py::arg("grad"), py::arg("input"), py::arg("weight_shape"), py::arg("stride") = kOne, py::arg("padding") = kZero,
      py::arg("dilation") = kOne, py::arg("groups") = 1,
      R"(The adjoint of conv2d in its weight: grad [N, H', W', O], input [N, H, W, C] -> [O, kh, kw, C / groups] of
weight_shape.

>>> import anello
>>> anello.conv2d_weight_grad(anello.zeros(1, 6, 6, 16), anello.zeros(1, 8, 8, 3), (16, 3, 3, 3)).shape
(16, 3, 3, 3)
)");
}

void bind_pooling(Definer& define) {
  define.function(
      "max_pool2d",
      [](const Tensor& x, PairArg kernel, const MaybePair& stride, PairArg padding, bool ceil_mode) {
        return max_pool2d(x, kernel.values, or_kernel(stride), padding.values, ceil_mode);
      },
      py::arg("input"), py::arg("kernel_size"), py::arg("stride") = py::none(), py::arg("padding") = kZero,
      py::kw_only(), py::arg("ceil_mode") = false,
      R"(The largest value of each window of input [N, H, W, C]. stride defaults to the kernel's size; padding (at
most half the kernel) counts as -inf; NaN wins. ceil_mode keeps the last partial window.

>>> import anello
>>> anello.max_pool2d(anello.arange(16).float().reshape(1, 4, 4, 1), 2).flatten().tolist()
[5.0, 7.0, 13.0, 15.0]
)");
  define.function(
      "max_pool1d",
      [](const Tensor& x, int64_t kernel, std::optional<int64_t> stride, int64_t padding, bool ceil_mode) {
        return max_pool1d(x, kernel, stride.value_or(0), padding, ceil_mode);
      },
      py::arg("input"), py::arg("kernel_size"), py::arg("stride") = py::none(), py::arg("padding") = 0, py::kw_only(),
      py::arg("ceil_mode") = false,
      R"(The largest value of each window of input [N, L, C]; see max_pool2d().

>>> import anello
>>> anello.max_pool1d(anello.tensor([[[-1.0], [-2.0]]]), 2, stride=1, padding=1).flatten().tolist()
[-1.0, -1.0, -2.0]
)");
  define.function(
      "avg_pool2d",
      [](const Tensor& x, PairArg kernel, const MaybePair& stride, PairArg padding, bool ceil_mode,
         bool count_include_pad) {
        return avg_pool2d(x, kernel.values, or_kernel(stride), padding.values, ceil_mode, count_include_pad);
      },
      py::arg("input"), py::arg("kernel_size"), py::arg("stride") = py::none(), py::arg("padding") = kZero,
      py::arg("ceil_mode") = false, py::arg("count_include_pad") = true,
      R"(The mean of each window of input [N, H, W, C]; padding counts as zeros in the mean when count_include_pad.

>>> import anello
>>> anello.avg_pool2d(anello.arange(16).float().reshape(1, 4, 4, 1), 2).flatten().tolist()
[2.5, 4.5, 10.5, 12.5]
)");
  define.function("global_avg_pool2d", &global_avg_pool2d, py::arg("input"),
                  R"(The mean over all positions: [N, H, W, C] -> [N, C].

>>> import anello
>>> anello.global_avg_pool2d(anello.ones(2, 4, 4, 3)).shape
(2, 3)
)");
}

void bind_normalisation(Definer& define) {
  define.function(
      "batch_norm",
      [](const Tensor& x, const MaybeTensor& mean, const MaybeTensor& var, const MaybeTensor& weight,
         const MaybeTensor& bias, bool training, double momentum, double eps) {
        return batch_norm(x, or_undefined(weight), or_undefined(bias), or_undefined(mean), or_undefined(var), training,
                          momentum, eps);
      },
      py::arg("input"), py::arg("running_mean"), py::arg("running_var"), py::arg("weight") = py::none(),
      py::arg("bias") = py::none(), py::arg("training") = false, py::arg("momentum") = 0.1, py::arg("eps") = 1e-5,
      R"(Normalises over all dims but the last: input [..., C]. In training the running statistics [C] (or None)
become (1 - momentum) running + momentum batch, with the unbiased variance; else they are used. Raises ShapeError in
training with one value a channel. arXiv 1502.03167.

>>> import anello
>>> x = anello.tensor([[1.0], [3.0]])
>>> mean, var = anello.zeros(1), anello.ones(1)
>>> anello.batch_norm(x, mean, var, training=True).round().tolist()
[[-1.0], [1.0]]
>>> round(mean.item(), 4), round(var.item(), 4)
(0.2, 1.1)
)");
  define.both(
      "dropout", &dropout, py::arg("p") = 0.5, py::arg("training") = true,
      R"(Zeroes each element with probability p and scales the rest by 1 / (1 - p); the identity unless training.

>>> import anello
>>> anello.dropout(anello.ones(3), p=0.5, training=False).tolist()
[1.0, 1.0, 1.0]
)");
  define.both("softmax", &softmax, py::arg("dim"), R"(exp(x) / sum(exp(x)) along dim, without overflow.

>>> import anello
>>> anello.softmax(anello.tensor([1000.0, 1000.0]), dim=0).tolist()
[0.5, 0.5]
)");
  define.both("log_softmax", &log_softmax, py::arg("dim"), R"(log(softmax(x)) along dim, without overflow.

>>> import anello
>>> anello.log_softmax(anello.tensor([0.0]), dim=0).tolist()
[0.0]
)");
}

using ClassLoss = Tensor (*)(const Tensor&, const Tensor&, const CrossEntropyOptions&);
using PairLoss = Tensor (*)(const Tensor&, const Tensor&, Reduction);

void bind_pair_loss(Definer& define, const char* name, PairLoss loss, const char* doc) {
  define.function(
      name,
      [loss](const Tensor& x, const Tensor& target, const std::string& reduction) {
        return loss(x, target, reduction_from_name(reduction));
      },
      py::arg("input"), py::arg("target"), py::kw_only(), py::arg("reduction") = "mean", doc);
}

}  // namespace

void bind_network(py::module_& m) {
  Definer define(m);
  define.both(
      "matmul", &matmul, py::arg("other"),
      R"(The matrix product: vectors and matrices as usual, more dims are batches that broadcast. Floats only; 16-bit
floats are added up in float32. Raises ShapeError when the inner sizes differ. The operator is @.

>>> import anello
>>> (anello.tensor([[1.0, 2.0]]) @ anello.tensor([[3.0], [4.0]])).tolist()
[[11.0]]
)");
  define.function(
      "linear",
      [](const Tensor& x, const Tensor& weight, const MaybeTensor& bias) {
        return linear(x, weight, or_undefined(bias));
      },
      py::arg("input"), py::arg("weight"), py::arg("bias") = py::none(),
      R"(input [..., in] times weight [out, in] transposed, plus bias [out].

>>> import anello
>>> anello.linear(anello.ones(1, 2), anello.tensor([[1.0, 2.0]]), anello.tensor([0.5])).tolist()
[[3.5]]
)");
  bind_convolution(define);
  bind_pooling(define);
  bind_normalisation(define);
}

void bind_losses(py::module_& m) {
  Definer define(m);
  define.function(
      "cross_entropy",
      [](const Tensor& x, const Tensor& target, const MaybeTensor& weight, int64_t ignore_index,
         const std::string& reduction, double label_smoothing) {
        return cross_entropy(x, target,
                             {or_undefined(weight), ignore_index, label_smoothing, reduction_from_name(reduction)});
      },
      py::arg("input"), py::arg("target"), py::arg("weight") = py::none(), py::kw_only(),
      py::arg("ignore_index") = -100, py::arg("reduction") = "mean", py::arg("label_smoothing") = 0.0,
      R"(Cross-entropy of logits [N, classes] and target [N] (integers) or [N, classes] (probabilities). Rows whose
label is ignore_index count neither in the sum nor in the mean; the mean divides by the summed class weights of the
counted rows; nothing counted gives 0. reduction 'none', 'mean' or 'sum'. Raises IndexError for a label outside [0,
classes).

>>> import anello
>>> logits = anello.tensor([[1.0, 2.0], [3.0, 0.4]])
>>> loss = anello.cross_entropy(logits, anello.tensor([-100, 1]), label_smoothing=0.1)
>>> round(loss.item(), 6)
2.541645
)");
  define.function(
      "nll_loss",
      [](const Tensor& x, const Tensor& target, const MaybeTensor& weight, int64_t ignore_index,
         const std::string& reduction) {
        return nll_loss(x, target, {or_undefined(weight), ignore_index, 0, reduction_from_name(reduction)});
      },
      py::arg("input"), py::arg("target"), py::arg("weight") = py::none(), py::kw_only(),
      py::arg("ignore_index") = -100, py::arg("reduction") = "mean",
      R"(cross_entropy() of log-probabilities [N, classes] instead of logits.

>>> import anello
>>> anello.nll_loss(anello.tensor([[-1.0, -2.0]]), anello.tensor([1])).item()
2.0
)");
  bind_pair_loss(define, "mse_loss", &mse_loss,
                 R"(The squared difference: its mean, its sum, or each (reduction 'mean', 'sum', 'none').

>>> import anello
>>> anello.mse_loss(anello.tensor([1.0, 2.0]), anello.tensor([1.0, 4.0])).item()
2.0
)");
  bind_pair_loss(define, "l1_loss", &l1_loss,
                 R"(The absolute difference: its mean, its sum, or each (reduction 'mean', 'sum', 'none').

>>> import anello
>>> anello.l1_loss(anello.tensor([1.0, 2.0]), anello.tensor([1.0, 4.0])).item()
1.0
)");
  bind_pair_loss(
      define, "binary_cross_entropy_with_logits", &binary_cross_entropy_with_logits,
      R"(Binary cross-entropy of logits and targets in [0, 1], without overflow (reduction 'mean', 'sum', 'none').

>>> import anello
>>> loss = anello.binary_cross_entropy_with_logits(anello.tensor([0.0]), anello.tensor([1.0]))
>>> round(loss.item(), 6)
0.693147
)");
}

}  // namespace anello::python
