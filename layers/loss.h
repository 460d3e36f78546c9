// Losses as modules: called with (input, target).
// Main entry: CrossEntropyLoss, MSELoss.
#pragma once

#include <anello/autograd/functions.h>
#include <anello/layers/module.h>

namespace anello::nn {

/// A module of two inputs.
class Loss : public Module {
 public:
  using Module::forward;
  virtual Tensor forward(const Tensor& input, const Tensor& target) = 0;
  Tensor operator()(const Tensor& input, const Tensor& target) { return forward(input, target); }
};

/// input [N, classes] logits, target [N] labels or [N, classes] probabilities: see cross_entropy(). The class weights
/// are a buffer, "weight".
class CrossEntropyLoss : public Loss {
 public:
  using Options = CrossEntropyOptions;
  /// Raises ValueError unless 0 <= label_smoothing <= 1.
  explicit CrossEntropyLoss(const CrossEntropyOptions& options = {});
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;
  std::string class_name() const override { return "CrossEntropyLoss"; }
  std::string extra_repr() const override;

 private:
  CrossEntropyOptions options_;
};

/// input [N, classes] log-probabilities, target [N]: see nll_loss(). label_smoothing raises ValueError.
class NLLLoss : public Loss {
 public:
  using Options = CrossEntropyOptions;
  explicit NLLLoss(const CrossEntropyOptions& options = {});
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;
  std::string class_name() const override { return "NLLLoss"; }
  std::string extra_repr() const override;

 private:
  CrossEntropyOptions options_;
};

/// (input - target)^2.
class MSELoss : public Loss {
 public:
  explicit MSELoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;
  std::string class_name() const override { return "MSELoss"; }
  std::string extra_repr() const override;

 private:
  Reduction reduction_;
};

/// |input - target|.
class L1Loss : public Loss {
 public:
  explicit L1Loss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;
  std::string class_name() const override { return "L1Loss"; }
  std::string extra_repr() const override;

 private:
  Reduction reduction_;
};

/// Cross-entropy of independent yes/no questions; input are logits, target probabilities.
class BCEWithLogitsLoss : public Loss {
 public:
  explicit BCEWithLogitsLoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;
  std::string class_name() const override { return "BCEWithLogitsLoss"; }
  std::string extra_repr() const override;

 private:
  Reduction reduction_;
};

}  // namespace anello::nn
