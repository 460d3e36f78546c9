// Normalisation layers.
// Main entry: BatchNorm::forward().
#include <anello/layers/norm.h>

#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>
#include <anello/layers/options.h>

namespace anello::nn {

BatchNorm::BatchNorm(int64_t num_features, BatchNormOptions options) : num_features_(num_features), options_(options) {
  check<ValueError>(num_features >= 1, "BatchNorm", "num_features is ", num_features, ", at least 1 is needed");
  check<ValueError>(options.eps >= 0, "BatchNorm", "eps is ", options.eps, ", at least 0 is needed");
  check<ValueError>(!options.momentum || (*options.momentum >= 0 && *options.momentum <= 1), "BatchNorm",
                    "momentum is ", options.momentum.value_or(0), ", a number from 0 to 1 is needed");
  const bool track = options.track_running_stats;
  register_parameter("weight", weight, options.affine ? ones({num_features}) : Tensor());
  register_parameter("bias", bias, options.affine ? zeros({num_features}) : Tensor());
  register_buffer("running_mean", running_mean, track ? zeros({num_features}) : Tensor());
  register_buffer("running_var", running_var, track ? ones({num_features}) : Tensor());
  register_buffer("num_batches_tracked", num_batches_tracked, track ? zeros({}, int64) : Tensor());
}

void BatchNorm::reset_running_stats() {
  if (running_mean.defined()) fill(running_mean, 0);
  if (running_var.defined()) fill(running_var, 1);
  if (num_batches_tracked.defined()) fill(num_batches_tracked, 0);
}

Tensor BatchNorm::forward(const Tensor& x) {
  check_input(x);
  const bool tracked = running_mean.defined() && running_var.defined();
  const bool batch_statistics = is_training() || !tracked;
  double momentum = options_.momentum.value_or(0);
  const bool replaced = is_training() && training_function_ != nullptr;
  const bool count = is_training() && num_batches_tracked.defined() && (x.numel() > 0 || replaced);
  if (count && !options_.momentum) momentum = 1.0 / static_cast<double>(num_batches_tracked.item<int64_t>() + 1);
  const bool update = is_training() && tracked;
  const Tensor none;
  const Tensor& average = update || !batch_statistics ? running_mean : none;
  const Tensor& variance = update || !batch_statistics ? running_var : none;
  Tensor y = replaced ? training_function_(x, weight, bias, average, variance, momentum, options_.eps)
                      : batch_norm(x, weight, bias, average, variance, batch_statistics, momentum, options_.eps);
  if (count) {  // last, so that a batch that raised is not counted
    const NoGradGuard no_grad;
    add_(num_batches_tracked, 1);
  }
  return y;
}

std::string BatchNorm::extra_repr() const {
  const std::string momentum = options_.momentum ? concat(*options_.momentum) : "None";
  return concat(num_features_, ", eps=", options_.eps, ", momentum=", momentum,
                ", affine=", detail::yes_no(options_.affine),
                ", track_running_stats=", detail::yes_no(options_.track_running_stats));
}

void BatchNorm2d::check_input(const Tensor& x) const {
  check<ShapeError>(x.dim() == 4 && x.shape()[3] == num_features_, "BatchNorm2d", "the input is ", x.shape(),
                    ", not [N, H, W, ", num_features_, "]. Hint: images are channels last",
                    x.dim() == 4 && x.shape()[1] == num_features_ ? "; permute the dims to (0, 2, 3, 1)." : ".");
}

void BatchNorm1d::check_input(const Tensor& x) const {
  check<ShapeError>((x.dim() == 2 || x.dim() == 3) && x.shape().back() == num_features_, "BatchNorm1d", "the input is ",
                    x.shape(), ", neither [N, ", num_features_, "] nor [N, L, ", num_features_,
                    "]. Hint: channels are the last dim.");
}

}  // namespace anello::nn
