// Losses as modules.
// Main entry: CrossEntropyLoss::forward().
#include <anello/layers/loss.h>

namespace anello::nn {

namespace {
std::string describe(Reduction reduction) {
  constexpr const char* names[] = {"none", "mean", "sum"};
  return concat("reduction='", names[static_cast<int>(reduction)], "'");
}
}  // namespace

CrossEntropyLoss::CrossEntropyLoss(const CrossEntropyOptions& options) : options_(options) {
  check<ValueError>(options.label_smoothing >= 0 && options.label_smoothing <= 1, "CrossEntropyLoss",
                    "label_smoothing is ", options.label_smoothing, ", a number from 0 to 1 is needed");
  register_buffer("weight", options_.weight, options.weight);
}

Tensor CrossEntropyLoss::forward(const Tensor& input, const Tensor& target) {
  return cross_entropy(input, target, options_);
}

std::string CrossEntropyLoss::extra_repr() const {
  std::string text = describe(options_.reduction);
  if (options_.ignore_index != -100) text += concat(", ignore_index=", options_.ignore_index);
  if (options_.label_smoothing != 0) text += concat(", label_smoothing=", options_.label_smoothing);
  return text;
}

NLLLoss::NLLLoss(const CrossEntropyOptions& options) : options_(options) {
  check<ValueError>(options.label_smoothing == 0, "NLLLoss", "label_smoothing is ", options.label_smoothing,
                    ", but this loss has none. Hint: CrossEntropyLoss has.");
  register_buffer("weight", options_.weight, options.weight);
}

Tensor NLLLoss::forward(const Tensor& input, const Tensor& target) { return nll_loss(input, target, options_); }

std::string NLLLoss::extra_repr() const { return describe(options_.reduction); }

Tensor MSELoss::forward(const Tensor& input, const Tensor& target) { return mse_loss(input, target, reduction_); }
std::string MSELoss::extra_repr() const { return describe(reduction_); }

Tensor L1Loss::forward(const Tensor& input, const Tensor& target) { return l1_loss(input, target, reduction_); }
std::string L1Loss::extra_repr() const { return describe(reduction_); }

Tensor BCEWithLogitsLoss::forward(const Tensor& input, const Tensor& target) {
  return binary_cross_entropy_with_logits(input, target, reduction_);
}
std::string BCEWithLogitsLoss::extra_repr() const { return describe(reduction_); }

}  // namespace anello::nn
