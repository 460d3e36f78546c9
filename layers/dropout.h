// Dropout, and the layers that only change a shape or nothing at all.
// Main entry: Dropout, Flatten, Identity.
#pragma once

#include <anello/layers/module.h>

namespace anello::nn {

/// In training zeroes elements with probability p and scales the rest by 1 / (1 - p); the identity in evaluation. Draws
/// from the default generator. JMLR 15 (2014) 1929.
class Dropout : public Module {
 public:
  /// Raises ValueError unless 0 <= p <= 1.
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "Dropout"; }
  std::string extra_repr() const override { return concat("p=", p_); }

 private:
  double p_;
};

/// Joins the dims from start_dim to end_dim into one. Images are channels last: [N, H, W, C] becomes [N, H W C],
/// another order of features than that of frameworks with [N, C, H, W].
class Flatten : public Module {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1) : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "Flatten"; }
  std::string extra_repr() const override { return concat("start_dim=", start_dim_, ", end_dim=", end_dim_); }

 private:
  int64_t start_dim_, end_dim_;
};

/// Returns its input.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
  std::string class_name() const override { return "Identity"; }
};

}  // namespace anello::nn
