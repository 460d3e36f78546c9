// Limits on gradients.
// Main entry: clip_grad_norm_().
#include <anello/optim/clip.h>

#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>
#include <anello/core/kernels/optim.h>
#include <anello/core/registry.h>

#include <algorithm>
#include <cmath>

namespace anello::optim {

namespace {
/// Gradients of one device and dtype, as the fused kernels take them; `copies` are contiguous.
struct GradList {
  Device device;
  DType dtype;
  std::vector<Tensor> grads, copies;
  std::vector<OptimTensor> tensors;
};

std::vector<GradList> gradient_lists(const std::vector<Tensor>& params) {
  std::vector<GradList> lists;
  for (const Tensor& param : params) {
    const Tensor grad = param.grad();
    if (!grad.defined()) continue;
    auto list = std::find_if(lists.begin(), lists.end(),
                             [&](const GradList& l) { return l.device == grad.device() && l.dtype == grad.dtype(); });
    if (list == lists.end()) list = lists.insert(lists.end(), {grad.device(), grad.dtype(), {}, {}, {}});
    const bool known = std::any_of(list->grads.begin(), list->grads.end(), [&](const Tensor& g) { return g.is(grad); });
    if (known) continue;  // a tied parameter listed twice has one gradient
    list->grads.push_back(grad);
    list->copies.push_back(contiguous_data(grad));
    void* data = list->copies.back().raw_data();
    list->tensors.push_back({data, data, {}, grad.numel(), 1});
  }
  return lists;
}
}  // namespace

double clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, bool error_if_nonfinite) {
  check<ValueError>(max_norm >= 0, "clip_grad_norm_", "max_norm is ", max_norm, ", a number of at least 0 is needed");
  const NoGradGuard no_grad;
  const std::vector<GradList> lists = gradient_lists(params);
  double sum = 0;
  for (const GradList& list : lists) {
    const auto count = static_cast<int64_t>(list.tensors.size());
    std::vector<double> squares(list.tensors.size());
    launch<kSumSquares>(list.device, list.dtype, SumSquaresParams{list.tensors.data(), count, squares.data()});
    for (double square : squares) sum += square;
  }
  const double norm = std::sqrt(sum);
  check<Error>(!error_if_nonfinite || std::isfinite(norm), "clip_grad_norm_", "the norm of the gradients is ", norm,
               ". Hint: lower the learning rate, or look for the first loss that is not finite.");
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (const GradList& list : lists) {
    launch<kScale>(list.device, list.dtype,
                   ScaleParams{list.tensors.data(), static_cast<int64_t>(list.tensors.size()), factor});
    for (size_t i = 0; i < list.grads.size(); ++i) {
      if (list.copies[i].is(list.grads[i]))
        list.grads[i].bump_version();
      else
        copy_into(list.grads[i], list.copies[i]);
    }
  }
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& params, double clip_value) {
  check<ValueError>(clip_value >= 0, "clip_grad_value_", "clip_value is ", clip_value,
                    ", a number of at least 0 is needed");
  const NoGradGuard no_grad;
  for (const Tensor& param : params)
    if (const Tensor grad = param.grad(); grad.defined()) copy_into(grad, clamp(grad, -clip_value, clip_value));
}

}  // namespace anello::optim
