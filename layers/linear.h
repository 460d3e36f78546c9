// The fully connected layer.
// Main entry: Linear.
#pragma once

#include <anello/layers/module.h>

namespace anello::nn {

/// y = x weight^T + bias over the last dim: x [..., in_features] -> [..., out_features].
class Linear : public Module {
 public:
  /// Weight and bias start uniform in +-1 / sqrt(in_features). Raises ValueError for sizes below 1.
  Linear(int64_t in_features, int64_t out_features, bool bias = true);
  Tensor forward(const Tensor& x) override;
  /// Draws new values from the default generator.
  void reset_parameters();
  std::string class_name() const override { return "Linear"; }
  std::string extra_repr() const override;

  Tensor weight;  ///< [out_features, in_features]
  Tensor bias;    ///< [out_features], or undefined

 private:
  int64_t in_features_, out_features_;
};

}  // namespace anello::nn
