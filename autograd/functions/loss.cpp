// Losses.
// Main entry: cross_entropy(), nll_loss(), mse_loss(), l1_loss(), binary_cross_entropy_with_logits() of
// autograd/functions.h.
#include <anello/autograd/functions.h>
#include <anello/autograd/node.h>
#include <anello/core/kernels/loss.h>
#include <anello/core/registry.h>
#include <anello/core/suggest.h>

#include <algorithm>

namespace anello {

Reduction reduction_from_name(std::string_view name) {
  if (name == "none") return Reduction::none;
  if (name == "mean") return Reduction::mean;
  if (name == "sum") return Reduction::sum;
  fail<ValueError>("reduction", "unknown reduction '", name, "'.", suggest(name, {"none", "mean", "sum"}));
}

namespace {

using Reduce = CrossEntropyParams::Reduce;

/// What forward and backward share besides tensors.
struct Settings {
  bool from_logits, has_labels;
  int64_t ignore_index;
  double smoothing;
  Reduce reduce;
};

Reduce reduce_of(Reduction r) {
  return r == Reduction::none ? Reduce::none : r == Reduction::sum ? Reduce::sum : Reduce::mean;
}

void* data_or_null(const Tensor& t) { return t.defined() ? t.raw_data() : nullptr; }

CrossEntropyTarget kernel_target(const Settings& s, const Tensor& target, const Tensor& weight) {
  return {s.has_labels ? target.data<int64_t>() : nullptr, s.has_labels ? nullptr : target.raw_data(),
          data_or_null(weight), s.ignore_index, s.smoothing};
}

/// q of core/kernels/loss.h, [rows..., classes], and which rows count; differentiable in probabilities.
Tensor target_weights(const Settings& s, const Tensor& target, const Tensor& weight, int64_t classes, DType wide) {
  const Tensor w = weight.defined() ? weight : ones({classes}, wide, target.device());
  const double spread = s.smoothing / static_cast<double>(std::max<int64_t>(1, classes));
  if (!s.has_labels) return w * (cast(target, wide) * (1 - s.smoothing) + spread);
  const Tensor counted = ne(target, s.ignore_index);
  const Tensor hot = one_hot(where(counted, target, zeros_like(target)), classes, wide);
  return w * (hot * (1 - s.smoothing) + spread) * unsqueeze(cast(counted, wide), -1);
}

/// The backward in public functions. saved: x, target, weight, row_stats, divisor.
void composite_backward(Backward& bw, const Settings& s) {
  const Tensor x = bw.saved(0), target = bw.saved(1), weight = bw.saved(2);
  const DType wide = accumulate_type(x.dtype());
  const double divisor = bw.saved(4).item<double>();
  const Tensor x32 = cast(x, wide), q = target_weights(s, target, weight, x.shape().back(), wide);
  Tensor g = cast(bw.grad(), wide) * (divisor == 0 ? 0.0 : 1 / divisor);
  if (s.reduce == Reduce::none) g = unsqueeze(g, -1);
  if (bw.needs(0)) {
    bw.give(0, s.from_logits ? (softmax(x32, -1) * sum(q, {-1}, true) - q) * g : neg(q) * g);
  }
  if (!s.has_labels && bw.needs(1)) {
    const Tensor log_p = s.from_logits ? log_softmax(x32, -1) : x32;
    const Tensor share = weight.defined() ? weight * (s.smoothing - 1) : full({}, s.smoothing - 1, wide, x.device());
    bw.give(1, log_p * share * g);
  }
}

void fused_backward(Backward& bw, const Settings& s) {
  const Tensor x = bw.saved(0), target = bw.saved(1), weight = bw.saved(2), stats = bw.saved(3), divisor = bw.saved(4);
  const Tensor dloss = contiguous_data(bw.grad()), dx = empty(x.shape(), x.dtype(), x.device());
  const int64_t classes = x.shape().back();
  if (x.numel() > 0) {
    launch<kCrossEntropyGrad>(
        x.device(), x.dtype(),
        {dx.raw_data(), x.raw_data(), x.numel() / classes, classes, kernel_target(s, target, weight), s.from_logits,
         data_or_null(stats), dloss.raw_data(), s.reduce == Reduce::none, divisor.raw_data()});
  }
  bw.give(0, dx);
}

void check_target(const char* name, const Tensor& x, const Tensor& target) {
  check<DTypeError>(is_floating_point(x.dtype()), name, "the input is ", x.dtype(),
                    ". Hint: cast it to a float dtype; the target "
                    "is the second argument.");
  check<ShapeError>(x.dim() >= 1, name, "the input is a scalar. Hint: classes are the last dim.");
  check<DeviceError>(target.device() == x.device(), name, "the target is on ", target.device(), ", the input on ",
                     x.device(), ". Hint: use to().");
  if (is_floating_point(target.dtype())) {
    check<ShapeError>(target.shape() == x.shape(), name, "probability targets of shape ", target.shape(),
                      " for an input of shape ", x.shape(), ". Hint: they must be equal; class labels are integers.");
    return;
  }
  check<DTypeError>(is_integral(target.dtype()), name, "the target is ", target.dtype(),
                    ". Hint: labels are integers.");
  Shape rows = x.shape();
  rows.pop_back();
  check<ShapeError>(target.shape() == rows, name, "labels of shape ", target.shape(), " for an input of shape ",
                    x.shape(), ": expected ", rows, ". Hint: one label a row; classes are the last dim.");
}

Tensor class_weight(const char* name, const Tensor& weight, const Tensor& x) {
  if (!weight.defined()) return weight;
  check<ShapeError>(weight.shape() == Shape{x.shape().back()}, name, "class weights of shape ", weight.shape(), " for ",
                    x.shape().back(), " classes.");
  check<DeviceError>(weight.device() == x.device(), name, "the class weights are on ", weight.device(),
                     ", the input on ", x.device(), ". Hint: use to().");
  check<ValueError>(!is_grad_enabled() || !weight.requires_grad(), name,
                    "class weights have no gradient. Hint: detach() them.");
  return copy_as(weight, accumulate_type(x.dtype()));
}

Tensor cross_entropy_of(const char* name, bool from_logits, const Tensor& input, const Tensor& given_target,
                        const CrossEntropyOptions& options) {
  check_target(name, input, given_target);
  check<ValueError>(options.label_smoothing >= 0 && options.label_smoothing <= 1, name, "label_smoothing is ",
                    options.label_smoothing, ". Hint: it lies in [0, 1].");
  const bool has_labels = is_integral(given_target.dtype());
  const DType dtype = has_labels ? input.dtype() : promote_types(input.dtype(), given_target.dtype());
  const DType wide = accumulate_type(dtype);
  const Tensor x = contiguous(cast(input, dtype)), target = contiguous(cast(given_target, has_labels ? int64 : dtype));
  const Tensor weight = class_weight(name, options.weight, x);
  const Settings s{from_logits, has_labels, options.ignore_index, options.label_smoothing,
                   reduce_of(options.reduction)};
  Shape rows = x.shape();
  rows.pop_back();
  const Tensor loss = empty(s.reduce == Reduce::none ? rows : Shape{}, dtype, x.device());
  const Tensor divisor = empty({}, wide, x.device());
  const Tensor stats = from_logits ? empty({numel(rows), 2}, wide, x.device()) : Tensor();
  const CrossEntropyParams params{
      x.raw_data(),      numel(rows),         x.shape().back(), kernel_target(s, target, weight),
      from_logits,       data_or_null(stats), loss.raw_data(),  s.reduce,
      divisor.raw_data()};
  if (from_logits)
    launch<kCrossEntropy>(x.device(), dtype, params);
  else
    launch<kNllLoss>(x.device(), dtype, params);
  return record(name, {&x, &target}, {&x, &target, &weight, &stats, &divisor}, loss, [s](Backward& bw) {
    // Probabilities rarely want a gradient: they have no kernel of their own.
    if (bw.create_graph() || (!s.has_labels && bw.needs(1)))
      composite_backward(bw, s);
    else
      fused_backward(bw, s);
  });
}

/// Checks and widens the operands of an elementwise loss, applies it, reduces and rounds once.
template <class F>
Tensor elementwise_loss(const char* name, const Tensor& x, const Tensor& target, Reduction reduction, const F& loss) {
  check<ShapeError>(x.shape() == target.shape(), name, "input of shape ", x.shape(), " and target of shape ",
                    target.shape(), ". Hint: they must be equal; use reshape or broadcast_to.");
  DType dtype = promote_types(x.dtype(), target.dtype());
  if (!is_floating_point(dtype)) dtype = float32;
  const DType wide = accumulate_type(dtype);
  const Tensor each = loss(cast(x, wide), cast(target, wide));
  const Tensor result = reduction == Reduction::none ? each : reduction == Reduction::sum ? sum(each) : mean(each);
  return cast(result, dtype);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  return cross_entropy_of("cross_entropy", true, logits, target, options);
}

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const CrossEntropyOptions& options) {
  return cross_entropy_of("nll_loss", false, log_probs, target, options);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return elementwise_loss("mse_loss", x, target, reduction,
                          [](const Tensor& a, const Tensor& b) { return square(a - b); });
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return elementwise_loss("l1_loss", x, target, reduction, [](const Tensor& a, const Tensor& b) { return abs(a - b); });
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, Reduction reduction) {
  // -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)): both logs as softplus, so that nothing cancels or overflows.
  return elementwise_loss(
      "binary_cross_entropy_with_logits", x, target, reduction,
      [](const Tensor& a, const Tensor& t) { return t * softplus(neg(a)) + rsub(1, t) * softplus(a); });
}

}  // namespace anello
