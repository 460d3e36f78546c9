// Pooling layers, channels last.
// Main entry: MaxPool2d, AvgPool2d, GlobalAvgPool2d.
#pragma once

#include <anello/layers/module.h>
#include <anello/layers/options.h>

#include <optional>

namespace anello::nn {

/// Padding is at most half the kernel. ceil_mode keeps the last partial window.
struct MaxPool2dOptions {
  std::optional<IntPair> stride = {};  ///< nullopt: the kernel's size
  IntPair padding = 0;
  bool ceil_mode = false;
};
struct AvgPool2dOptions {
  std::optional<IntPair> stride = {};
  IntPair padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< padding counts as zeros in the mean
};
struct MaxPool1dOptions {
  std::optional<int64_t> stride = {};
  int64_t padding = 0;
  bool ceil_mode = false;
};

/// The largest value of each window: x [N, H, W, C] -> [N, H', W', C]. Padding is -inf; NaN wins.
class MaxPool2d : public Module {
 public:
  using Options = MaxPool2dOptions;
  explicit MaxPool2d(IntPair kernel_size, MaxPool2dOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "MaxPool2d"; }
  std::string extra_repr() const override;

 private:
  IntPair kernel_, stride_;
  MaxPool2dOptions options_;
};

/// x [N, L, C] -> [N, L', C].
class MaxPool1d : public Module {
 public:
  using Options = MaxPool1dOptions;
  explicit MaxPool1d(int64_t kernel_size, MaxPool1dOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "MaxPool1d"; }
  std::string extra_repr() const override;

 private:
  int64_t kernel_, stride_;
  MaxPool1dOptions options_;
};

/// The mean of each window: x [N, H, W, C] -> [N, H', W', C].
class AvgPool2d : public Module {
 public:
  using Options = AvgPool2dOptions;
  explicit AvgPool2d(IntPair kernel_size, AvgPool2dOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "AvgPool2d"; }
  std::string extra_repr() const override;

 private:
  IntPair kernel_, stride_;
  AvgPool2dOptions options_;
};

/// The mean over all positions: x [N, H, W, C] -> [N, C].
class GlobalAvgPool2d : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "GlobalAvgPool2d"; }
};

}  // namespace anello::nn
